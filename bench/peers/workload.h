// The work that the peers are measured with, the same as in the benchmarks of
// the root package (bench_test.go, bench_live_test.go, bench_parallel_test.go),
// printed in their format, so that results lie side by side by their names.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <sched.h>
#include <thread>
#include <vector>

namespace workload {

constexpr size_t MiB = 1 << 20;

// since returns the time from start on, in ns for each of n operations.
inline double since(std::chrono::steady_clock::time_point start, long n) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / n;
}

// print writes a result; -N behind a name is the number of threads, as in Go.
inline void print(const char *name, int threads, long n, double ns) {
  if (threads > 1)
    std::printf("Benchmark%s-%d\t%ld\t%.1f ns/op\n", name, threads, n, ns);
  else
    std::printf("Benchmark%s\t%ld\t%.1f ns/op\n", name, n, ns);
  std::fflush(stdout);
}

// next is xorshift64.
inline uint64_t next(uint64_t &state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

// random_size is log-uniform from 256 bytes to 64 MiB.
inline size_t random_size(uint64_t &state) {
  size_t base = size_t(1) << (8 + next(state) % 18);
  return base + next(state) % base;
}

template <class Alloc, class Free> void pairs(Alloc alloc, Free free, size_t size, long n) {
  for (long i = 0; i < n; i++) free(alloc(size));
}

// hits measures pairs of one size, which is cached.
template <class Alloc, class Free> double hits(Alloc alloc, Free free, size_t size, long n) {
  pairs(alloc, free, size, 32);
  auto start = std::chrono::steady_clock::now();
  pairs(alloc, free, size, n);
  return since(start, n);
}

// random_live holds live blocks and replaces one a step.
template <class Alloc, class Free> double random_live(Alloc alloc, Free free, long live, long n) {
  std::vector<void *> blocks(live, nullptr);
  uint64_t state = 88172645463325252ULL;
  auto steps = [&](long k) {
    for (long i = 0; i < k; i++) {
      size_t j = next(state) % live;
      if (blocks[j]) free(blocks[j]);
      blocks[j] = alloc(random_size(state));
    }
  };
  steps(20 * live);
  auto start = std::chrono::steady_clock::now();
  steps(n);
  double ns = since(start, n);
  for (void *p : blocks)
    if (p) free(p);
  return ns;
}

// anywhere lets this thread run on all processors, when the program began on
// one (peers.sh, CPU).
inline void anywhere() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int i = 0; i < CPU_SETSIZE; i++) CPU_SET(i, &all);
  sched_setaffinity(0, sizeof all, &all);
}

// parallel has threads run n pairs each, beginning together, and returns the
// wall time divided by all pairs. prepare runs in each thread and returns what
// runs a number of pairs there.
inline double parallel(int threads, long n, std::function<std::function<void(long)>()> prepare) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; i++)
    all.emplace_back([&] {
      anywhere();
      auto run = prepare();
      run(1000); // caches what is needed
      ready++;
      while (!go) std::this_thread::yield();
      run(n);
    });
  while (ready < threads) std::this_thread::yield();
  auto start = std::chrono::steady_clock::now();
  go = true;
  for (auto &t : all) t.join();
  return since(start, n * threads);
}

// measure prints what every allocator is measured with, rounds times. own
// prepares a thread that works on a stream of its own, shared one that works on
// the stream of alloc and free.
template <class Alloc, class Free, class Prepare>
void measure(Alloc alloc, Free free, Prepare shared, Prepare own, int rounds) {
  const struct { const char *name; size_t bytes; } sizes[] = {
      {"Hit/size=512", 512}, {"Hit/size=1MiB", MiB}, {"Hit/size=32MiB", 32 * MiB}};
  for (int r = 0; r < rounds; r++) {
    for (auto &size : sizes) print(size.name, 1, 100000, hits(alloc, free, size.bytes, 100000));
    print("RandomLive1000/backing=auto", 1, 100000, random_live(alloc, free, 1000, 100000));
    for (int threads : {1, 2, 4, 8, 16}) {
      print("ParallelHit/stream=shared", threads, 20000L * threads, parallel(threads, 20000, shared));
      print("ParallelHit/stream=own", threads, 20000L * threads, parallel(threads, 20000, own));
    }
  }
}

// cross_batch is how many blocks are freed behind a busy device before the
// next piece of work is given to it.
constexpr long cross_batch = 64;
constexpr size_t busy_bytes = 1 << 30;

// cross_busy measures once, batch by batch: settle waits for the device and
// gives it work, and is not measured.
template <class Once, class Settle> double cross_busy(Once once, Settle settle, long batches) {
  std::chrono::steady_clock::duration spent{0};
  for (long i = 0; i < batches; i++) {
    settle();
    auto start = std::chrono::steady_clock::now();
    for (long j = 0; j < cross_batch; j++) once();
    spent += std::chrono::steady_clock::now() - start;
  }
  return std::chrono::duration<double, std::nano>(spent).count() / (batches * cross_batch);
}

} // namespace workload
