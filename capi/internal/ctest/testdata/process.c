/*
 * What may happen to the process: forks, exits in any order, signals, panics, and a driver that fails.
 *
 * usage: process WHAT
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern cupool_status cupool_test_panic(int how);

static void *alloc(size_t size) {
  void *p;
  OK(cupool_alloc(0, size, NULL, &p));
  return p;
}

static void child_is(int status) {
  int got;
  CHECK(waitpid(-1, &got, 0) > 0);
  CHECK(WIFEXITED(got) && WEXITSTATUS(got) == status);
}

static void forks(void) {
  for (int used = 0; used < 2; used++) { /* before the first use of the pool, and after */
    void *p = NULL;
    if (used) {
      p = alloc(1000);
      for (int i = 0; i < 10; i++) OK(cupool_free(alloc(1000)));
    }
    if (fork() == 0) {
      void *q = &q;
      FAILS(CUPOOL_ERROR_FORKED, cupool_alloc(0, 1000, NULL, &q));
      CHECK(q == NULL && strstr(cupool_last_error(), "fork") != NULL);
      FAILS(CUPOOL_ERROR_FORKED, cupool_free(p));
      FAILS(CUPOOL_ERROR_FORKED, cupool_record_stream(&q, NULL));
      FAILS(CUPOOL_ERROR_FORKED, cupool_trim(0, CUPOOL_ALL, 0, NULL));
      FAILS(CUPOOL_ERROR_FORKED, cupool_begin(0, CUPOOL_POOL_ID(1, 1), NULL, NULL));
      FAILS(CUPOOL_ERROR_FORKED, cupool_label_push("mine"));
      FAILS(CUPOOL_ERROR_FORKED, cupool_label_pop());
      CHECK(!cupool_is_open(0) && !cupool_history_enabled(0));
      if (fork() == 0) {
        FAILS(CUPOOL_ERROR_FORKED, cupool_alloc(0, 1000, NULL, &q));
        _exit(3);
      }
      child_is(3);
      exit(4); /* with handlers and destructors */
    }
    child_is(4);
    if (fork() == 0) execlp("true", "true", (char *)NULL);
    child_is(0);
    if (p != NULL) OK(cupool_free(p));
  }
}

/* Exits. */
static void *late[4];

static void at_exit(void) { OK(cupool_free(late[0])); }

__attribute__((destructor)) static void destructor(void) {
  if (late[1] != NULL) OK(cupool_free(late[1]));
  if (late[2] != NULL) {
    OK(cupool_alloc(0, 5 * MIB, NULL, &late[3]));
    OK(cupool_free(late[3]));
    OK(cupool_free(late[2]));
  }
}

static void *forever(void *of) {
  for (;;) {
    void *p;
    size_t size = *(size_t *)of;
    if (cupool_alloc(0, size, NULL, &p) == CUPOOL_OK) cupool_free(p);
    *(size_t *)of = size % (8 * MIB) + 4096;
  }
  return NULL;
}

static void exits(void) {
  use_device();
  void *stream = new_stream();
  OK(cupool_alloc(0, 10 * MIB, stream, &late[0]));
  late[1] = alloc(1000), late[2] = alloc(3 * MIB);
  atexit(at_exit);
  CHECK(CU(cuMemsetD8Async, (uintptr_t, unsigned char, size_t, void *), (uintptr_t)late[0], 1, 10 * MIB, stream) == 0);
  static size_t sizes[2] = {1000, 3 << 20};
  for (int i = 0; i < 2; i++) {
    pthread_t t;
    pthread_create(&t, NULL, forever, &sizes[i]);
  }
  usleep(20000);
}

/* The driver has shut down. */
static void shutdown(void) {
  void *p = alloc(1000), *q = alloc(30 * MIB);
  ((void (*)(const char *, int, int, int))driver("fakecuda_fail"))("cuEventRecord", 1, 4, 1000);
  ((void (*)(const char *, int, int, int))driver("fakecuda_fail"))("cuEventQuery", 1, 4, 1000);
  ((void (*)(const char *, int, int, int))driver("fakecuda_fail"))("cuMemFree_v2", 1, 4, 1000);
  OK(cupool_free(p));
  OK(cupool_free(q));
}

/* Signals. */
static volatile sig_atomic_t ticks, segvs;
static void tick(int n) {
  (void)n;
  ticks++;
}

static void segv(int n, siginfo_t *info, void *context) {
  (void)n, (void)info, (void)context;
  segvs++;
  _exit(7); /* as faulthandler, whose text is out by now */
}

static void handle(int signal, void (*f)(int), int flags) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_handler = f, a.sa_flags = flags;
  CHECK(sigaction(signal, &a, NULL) == 0);
}

static void signals(void) {
  handle(SIGPROF, tick, SA_RESTART | SA_ONSTACK); /* as profilers do */
  struct itimerval every = {{0, 1000}, {0, 1000}};
  CHECK(setitimer(ITIMER_PROF, &every, NULL) == 0);
  for (size_t i = 0; ticks < 20; i++) {
    OK(cupool_free(alloc(4096 + i % 4096 * 512)));
    if (i % 64 == 0) OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  }
  memset(&every, 0, sizeof every);
  CHECK(setitimer(ITIMER_PROF, &every, NULL) == 0);
  pid_t pid = getpid();
  handle(SIGCHLD, tick, 0); /* without SA_ONSTACK, on a thread that is not in Go */
  for (int before = ticks, i = 0; i < 10; i++) {
    kill(pid, SIGCHLD);
    OK(cupool_free(alloc(1000)));
    CHECK(ticks > before);
  }
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_sigaction = segv, a.sa_flags = SA_SIGINFO | SA_ONSTACK;
  CHECK(sigaction(SIGSEGV, &a, NULL) == 0);
  OK(cupool_free(alloc(1000)));
  *(volatile int *)16 = 1;
  _exit(8);
}

/* A handler that was there before the library was loaded gets faults of C. */
static void handler_before(void) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_sigaction = segv, a.sa_flags = SA_SIGINFO;
  CHECK(sigaction(SIGSEGV, &a, NULL) == 0);
  void *library = dlopen(getenv("CUPOOL_LIBRARY"), RTLD_NOW);
  CHECK(library != NULL);
  int (*get)(int, size_t, void *, void **) = (int (*)(int, size_t, void *, void **))dlsym(library, "cupool_alloc");
  void *p;
  CHECK(get(0, 1000, NULL, &p) == CUPOOL_OK);
  dlclose(library);
  CHECK(get(0, 1000, NULL, &p) == CUPOOL_OK); /* it is never unloaded */
  *(volatile int *)16 = 1;
  _exit(8);
}

static void panics(void) {
  void *p = alloc(1000);
  for (int how = 0; how < 3; how++) {
    FAILS(CUPOOL_ERROR_INTERNAL, cupool_test_panic(how));
    CHECK(strstr(cupool_last_error(), "internal error") != NULL && strstr(cupool_last_error(), "cupoolGoPanic") != NULL);
    OK(cupool_free(alloc(4096)));
  }
  OK(cupool_free(p));
}

/* Each call of the driver that a program makes fails once: what fails says so, and the books agree. */
static void failures(void) {
  static const char *const calls[] = {"cuMemAlloc_v2", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve", "cuMemUnmap",
                                      "cuMemRelease", "cuEventRecord", "cuEventQuery", "cuEventCreate", "cuStreamSynchronize", "cuMemGetInfo_v2"};
  void (*fail)(const char *, int, int, int) = (void (*)(const char *, int, int, int))driver("fakecuda_fail");
  use_device();
  void *streams[2] = {new_stream(), new_stream()}, *held[8] = {NULL};
  OK(cupool_free(alloc(1000)));
  uint64_t random = 1;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    for (int code = 1; code < 1000; code += code == 1 ? 1 : 997) { /* invalid value, out of memory, unknown */
      fail(calls[i], 1 + (int)(next_random(&random) % 3), code, 1);
      for (int step = 0; step < 60; step++) {
        uint64_t r = next_random(&random);
        void **at = &held[r % 8];
        if (*at != NULL) {
          if (r >> 8 & 1) cupool_record_stream(*at, streams[r >> 9 & 1]);
          OK(cupool_free(*at));
          *at = NULL;
        } else if (cupool_alloc(0, 1 + (r >> 12) % (30 * MIB), streams[r >> 9 & 1], at) != CUPOOL_OK) {
          CHECK(*at == NULL && strlen(cupool_last_error()) > 20);
        }
        if (r >> 60 == 0) cupool_trim(0, CUPOOL_ALL, 0, NULL);
      }
      cupool_wait(0);
      ((void (*)(void))driver("fakecuda_reset"))();
      OK(cupool_wait(0));
      agree(0, CUPOOL_ALL);
    }
  }
}

/* What a failing call changes: nothing. */
static void unchanged(void) {
  void (*fail)(const char *, int, int, int) = (void (*)(const char *, int, int, int))driver("fakecuda_fail");
  char before[8192], after[8192];
  OK(cupool_set_fraction(0, 0.5));
  OK(cupool_settings(0, before, sizeof before, NULL));
  for (int call = 1; call < 9; call++) {
    fail("cuMemGetInfo_v2", call, 999, 1);
    cupool_status status = cupool_configure(0, "fraction:0.25,divisions:4");
    ((void (*)(void))driver("fakecuda_reset"))();
    OK(cupool_settings(0, after, sizeof after, NULL));
    CHECK((status == CUPOOL_OK) == (strcmp(before, after) != 0));
    if (status == CUPOOL_OK) OK(cupool_configure(0, "fraction:0,divisions:1"));
  }
}

/* What the pool has reserved that has freed a block and then allocated a larger one, and held more than both once. */
static int64_t after_row(void) {
  OK(cupool_free(alloc(320 * MIB)));
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  OK(cupool_free(alloc(150 * MIB)));
  OK(cupool_free(alloc(160 * MIB)));
  int64_t reserved = stats_of(CUPOOL_MAIN).reserved_bytes.all.current;
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  return reserved;
}

/* A threshold is a part of the limit in force, whoever set that, and without one of the device's memory. */
static void thresholds(void) {
  const int64_t kept = (int64_t)(310 * MIB), went = (int64_t)(160 * MIB);
  cupool_config c;
  cupool_init(&c, sizeof c);
  c.settings = "backing:segments,limit:400MiB,garbage_collection_threshold:0.5";
  OK(cupool_open(0, &c));
  CHECK(after_row() == went);
  OK(cupool_configure(0, "limit:0"));
  CHECK(after_row() == kept);
  OK(cupool_set_limit(0, 400 * MIB));
  CHECK(after_row() == went);
  OK(cupool_configure(0, "garbage_collection_threshold:0.45"));
  CHECK(after_row() == went);
  OK(cupool_set_fraction(0, 0.1)); /* of 4 GiB */
  CHECK(after_row() == went);
  OK(cupool_set_fraction(0, 1));
  CHECK(after_row() == kept);
}

/* Settings of the environment, as it is when the pool is opened, and what changes them. */
static void environment(void) {
  setenv("CUPOOL_ALLOC_CONF", "limit:100MiB,idle_order:owner,decay:5s", 1);
  setenv("FAKECUDA_DEVICES", "3", 1);
  void *p, *q;
  OK(cupool_alloc(0, 80 * MIB, NULL, &p));
  char text[8192];
  OK(cupool_settings(0, text, sizeof text, NULL));
  CHECK(strstr(text, "idle_order:owner (CUPOOL_ALLOC_CONF)") != NULL && strstr(text, "limit:100M (CUPOOL_ALLOC_CONF)") != NULL);
  CHECK(stats_of(CUPOOL_ALL).limit == (int64_t)(100 * MIB));
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(0, 40 * MIB, NULL, &q));
  OK(cupool_set_fraction(0, 0.9));
  OK(cupool_set_fraction(0, 1));
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(0, 40 * MIB, NULL, &q)); /* the settings' limit stays */
  OK(cupool_set_limit(0, 90 * MIB));
  CHECK(stats_of(CUPOOL_ALL).limit == (int64_t)(90 * MIB));
  OK(cupool_configure(0, "limit:0"));
  CHECK(stats_of(CUPOOL_ALL).limit == (int64_t)(90 * MIB));
  OK(cupool_set_limit(0, 0));
  CHECK(stats_of(CUPOOL_ALL).limit == 0);
  OK(cupool_alloc(0, 40 * MIB, NULL, &q));
  cupool_config c;
  cupool_init(&c, sizeof c);
  c.no_environment = 1;
  OK(cupool_open(1, &c));
  OK(cupool_alloc(1, 200 * MIB, NULL, &q));
  OK(cupool_free(q));
  c.no_environment = 0, c.settings = "limit:0,decay:0s"; /* the program's come first, also those that are 0 */
  OK(cupool_open(2, &c));
  OK(cupool_settings(2, text, sizeof text, NULL));
  CHECK(strstr(text, "limit:0 (") != NULL && strstr(text, "decay:0s (") != NULL && strstr(text, "idle_order:owner (CUPOOL_ALLOC_CONF)") != NULL);
  OK(cupool_alloc(2, 200 * MIB, NULL, &q));
  OK(cupool_free(q));
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  static const struct {
    const char *name;
    void (*run)(void);
  } all[] = {{"forks", forks},     {"exits", exits},   {"shutdown", shutdown}, {"signals", signals},
             {"panics", panics},   {"failures", failures}, {"before", handler_before},
             {"unchanged", unchanged}, {"environment", environment}, {"thresholds", thresholds}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (strcmp(argv[1], all[i].name) == 0) {
      all[i].run();
      return 0;
    }
  }
  return 9;
}
