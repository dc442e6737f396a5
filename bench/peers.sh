#!/usr/bin/env bash
# Measures cupool, PyTorch's allocator and cudaMallocAsync on this machine's
# GPU, one after the other, and prints one table by benchstat.
#
# usage: bench/peers.sh [DIR]
#
# DIR (build/peers) gets what each printed (ours.txt, pytorch.txt, async.txt), and
# table.txt. It takes a GPU, Go, nvcc and a Python with
# PyTorch; the column of a peer that cannot run stays empty. Variables:
#
#   COUNT                how often each is measured (3)
#   CPUS                 numbers of goroutines for the parallel ones (1,2,4,8,16)
#   BENCHTIME            time for each of ours (0.5s)
#   CPU                  the processor for what one goroutine or thread does, of all three:
#                        a number, or "quiet" for the one where a hit takes least now. In
#                        a virtual machine another's work on the same core may double the
#                        time, and the system does not know (empty: as the system likes)
#   NVCC, PYTHON         the programs (nvcc, python3)
#   CUPOOL_TEST_BINARY   go test -c . made elsewhere, for a machine without Go
#   BENCHSTAT            the program that makes the table (go run golang.org/x/perf/cmd/benchstat@version)
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/peers}
count=${COUNT:-3}
python=${PYTHON:-python3}
mkdir -p "$out"
rm -f "$out"/{ours,pytorch,async,table}.txt

say() { echo "bench/peers.sh: $*" >&2; }
fail() { say "$@"; exit 3; }
have() { command -v "$1" >/dev/null; }

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>&1) ||
	fail "no GPU here: nvidia-smi says: ${gpu:-nothing}"

# ours: on device memory.
test=${CUPOOL_TEST_BINARY:-}
if [ -z "$test" ]; then
	have go || fail "no Go here, and CUPOOL_TEST_BINARY names no binary of: go test -c ."
	test=$out/cupool.test
	go test -c -o "$test" .
fi
[ -x "$test" ] || fail "CUPOOL_TEST_BINARY: $test is no program"
test=$(realpath "$test")

# quiet prints the number of the processor on which a hit takes least, of those
# that it may use.
quiet() {
	local cpu ns best= least=
	for cpu in $(seq 0 $(($(nproc --all) - 1))); do
		ns=$(CUPOOL_DEVICE=host:1GiB taskset -c "$cpu" "$test" -test.run '^$' -test.bench '^BenchmarkHit$/size=1MiB' \
			-test.benchtime 0.05s 2>/dev/null | awk '/ns\/op/ {print int(100 * $3)}') || continue
		if [ -n "$ns" ] && [ "$ns" -lt "${least:-$((ns + 1))}" ]; then
			least=$ns best=$cpu
		fi
	done
	[ -n "$best" ] || fail "CPU=quiet: no processor ran BenchmarkHit of $test"
	echo "$best"
}
alone=() # how to run what has one goroutine or thread
if [ -n "${CPU:-}" ]; then
	have taskset || fail "CPU=$CPU takes taskset, which is not here"
	[ "$CPU" != quiet ] || CPU=$(quiet)
	taskset -c "$CPU" true || fail "CPU=$CPU names no processor that may be used here"
	say "what has one goroutine or thread runs on processor $CPU"
	alone=(taskset -c "$CPU")
fi

flags=(-test.run '^$' -test.benchmem -test.timeout 1h -test.count "$count" -test.benchtime "${BENCHTIME:-0.5s}")
say "measuring cupool"
{
	echo "date: $(date -u +%F)"
	echo "gpu: $(head -n 1 <<<"$gpu")"
	CUPOOL_DEVICE=cuda "${alone[@]}" "$test" "${flags[@]}" \
		-test.bench '^Benchmark(Hit|RandomLive1000|CrossStream|EngineAllocFree|MissSplit|Trim1000|Ruler)$' |
		sed -E 's/^(Benchmark[^[:space:]]*)-[0-9]+/\1/' # the number of processors, which the peers do not print
	CUPOOL_DEVICE=cuda "$test" "${flags[@]}" -test.bench '^BenchmarkParallelHit$' -test.cpu "${CPUS:-1,2,4,8,16}"
} | tee "$out/ours.txt" >&2

# PyTorch builds its part when it runs.
peers=()
if "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
	say "measuring PyTorch"
	"${alone[@]}" "$python" bench/peers/torch_alloc.py "$count" | tee "$out/pytorch.txt" >&2
	peers+=("PyTorch=$out/pytorch.txt")
else
	say "PyTorch is left out: $python has no torch that works with CUDA (PYTHON names another)"
fi

nvcc=${NVCC:-$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")}
if have "$nvcc"; then
	say "measuring cudaMallocAsync"
	"$nvcc" -O3 -std=c++17 -o "$out/cuda_alloc" bench/peers/cuda_alloc.cu
	"${alone[@]}" "$(realpath "$out/cuda_alloc")" "$count" | tee "$out/async.txt" >&2
	peers+=("cudaMallocAsync=$out/async.txt")
else
	say "cudaMallocAsync is left out: there is no $nvcc (NVCC or CUDA_HOME name another)"
fi

table=(${BENCHSTAT:-go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da})
if ! have "${table[0]}"; then
	say "no Go here to make the table, and BENCHSTAT names no program; elsewhere: benchstat -ignore .config ours=$out/ours.txt ${peers[*]}"
	exit 0
fi
"${table[@]}" -ignore .config "ours=$out/ours.txt" "${peers[@]}" | tee "$out/table.txt"
