#!/usr/bin/env bash
# Runs on this machine's GPU what docs/gpu-validation.md reports, and prints a
# line for each part: its name, the tests that passed, were skipped and failed,
# and the seconds.
#
# usage: bench/validate.sh [-out DIR] [PART...]
#
# Parts (all of them, if none is named):
#
#   driver     the Driver: memory, streams, events, the calls of gorgonia.org/cu
#   native     CUDA's own pools, also two processes sharing one
#   device, managed, pinned
#              the conformance battery on each kind of memory
#   programs   kernels that verify what random programs allocate, a full device
#   engine     tensors, graphs, private pools
#   operations what computes on tensors, layers and optimizers, on CPU and GPU
#   gorgonia   Gorgonia's graphs
#   examples   the Examples and the example programs; MNIST names a directory
#              with all of MNIST for the latter
#   several    several devices, processes and ranks, as far as the machine has them
#   networks   bench/networks.sh: the networks of examples/gorgonia, beside PyTorch
#   replay     recorded programs with their contents verified; TRACES names a
#              directory with more than testdata/traces
#   memcheck   compute-sanitizer over the device battery, random kernels,
#              operations, graphs
#
# DIR (build/validate) gets what each printed. SECONDS_EACH ends what takes
# longer, in place of an hour; CUPOOL_GPU_STEPS and CUPOOL_GPU_SECONDS set how
# long the programs with kernels run. It takes a GPU and Go; on a
# machine without Go, CUPOOL_BINARIES names a directory that
#
#   bench/validate.sh -build DIR
#
# filled elsewhere. The repository has to be here in both cases.
#
# With CGO_CFLAGS and CGO_LDFLAGS as in docs/gpu.md, -build and driver have the tests of
# the tag cu, too.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

# The packages with tests that a GPU runs; each has a test binary.
packages=(. cuda native devices ipc dist nccl internal/tensorop nn gorgoniavm examples/mlp examples/gorgonia)
binary() { [ "$1" = . ] && echo cupool.test || echo "${1//\//-}.test"; } # PACKAGE

build() { # DIR
	mkdir -p "$1"
	local package
	for package in "${packages[@]}"; do
		go test -c -ldflags='-s -w' -o "$1/$(binary "$package")" "./$package"
	done
	[ -z "${CGO_CFLAGS:-}" ] || go test -c -tags cu -ldflags='-s -w' -o "$1/cu.test" .
	go build -ldflags='-s -w' -o "$1/" ./cmd/cupool ./examples/buffers ./examples/mlp ./examples/gorgonia
}

export CUPOOL_TEST=${CUPOOL_TEST-long} # the long form of every test, unless it is set to nothing
out=build/validate
case ${1:-} in
-build) build "${2:?bench/validate.sh: -build needs a directory}"; exit ;;
-out) out=${2:?bench/validate.sh: -out needs a directory}; shift 2 ;;
esac
mkdir -p "$out"
bin=${CUPOOL_BINARIES:-}
if [ -z "$bin" ]; then
	bin=$out/bin
	build "$bin"
fi
out=$(realpath "$out") bin=$(realpath "$bin")
failed=0

# part runs a command in a directory, and prints the line.
part() { # NAME DIRECTORY COMMAND...
	local name=$1 dir=$2 log=$out/$1.txt from=$SECONDS status=0 word=ok
	shift 2
	(cd "$root/$dir" && timeout "${SECONDS_EACH:-3600}" "$@") >"$log" 2>&1 || status=$?
	count() { grep -cE "^ *--- $1: " "$log" || true; }
	[ "$status" = 0 ] || { word="FAILED (status $status, see $log)"; failed=1; }
	local tests=
	if grep -qE '^ *--- ' "$log"; then
		tests="$(count PASS) passed, $(count SKIP) skipped, $(count FAIL) failed"
	fi
	printf '%-14s %5d s  %-40s %s\n' "$name" $((SECONDS - from)) "$tests" "$word"
}
tests() { # NAME PACKAGE EXPRESSION [MORE...]
	local name=$1 package=$2 run=$3
	shift 3
	part "$name" "$package" "$bin/$(binary "$package")" -test.v -test.timeout "${SECONDS_EACH:-3600}s" -test.run "$run" "$@"
}
battery() { tests "$1" cuda "^TestConformance$/^$1$"; }

programs='^TestGPU(RandomKernels|EightStreams|Stitched|Full|TwoProcesses)'
run() { # PART
	case $1 in
	driver)
		tests driver cuda . -test.skip "^TestConformance$|^TestPool$|$programs"
		tests open . '^TestOpenCUDA'
		[ ! -x "$bin/cu.test" ] || part driver-cu . "$bin/cu.test" -test.v -test.run '^(Test|Example)CU'
		;;
	native) tests native native '^(Test|Example)' ;;
	device | managed | pinned) battery "$1" ;;
	programs) tests programs cuda "$programs" ;;
	engine)
		tests engine . '^Test(GPU|Graph|Capture|NewEngine|Engine|Tensors|Freed|Views|Held|Lifetimes|Track|Scope|Try)'
		tests pools cuda '^TestPool$'
		;;
	operations)
		tests tensorop internal/tensorop .
		tests nn nn .
		;;
	gorgonia) tests gorgonia gorgoniavm . ;;
	examples)
		tests Examples . '^Example'
		tests mlp-tests examples/mlp TestGPUs
		tests gorgonia-tests examples/gorgonia GPU
		part buffers . "$bin/buffers" -device cuda
		for flags in "" -graph; do
			part "mlp$flags" . "$bin/mlp" -device cuda $flags ${MNIST:+-data "$MNIST"} -shift 0 -json
			part "gorgonia-mlp$flags" . "$bin/gorgonia" -device cuda $flags ${MNIST:+-data "$MNIST"} -shift 0 -json
		done
		;;
	several)
		for package in devices ipc dist nccl; do tests $package $package .; done
		tests mlp-ranks examples/mlp 'Processes|Killed'
		;;
	networks) GORGONIA="$bin/gorgonia" part networks . bench/networks.sh "$out/networks" ;;
	replay)
		for backing in segments vmm; do
			part "replay-$backing" . "$bin/cupool" replay -device cuda -verify -backing $backing \
				$(find testdata/traces ${TRACES:-} \( -name '*.trace*' -o -name '*.pickle.gz' \) | sort)
		done
		;;
	memcheck)
		check=(compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9)
		part check-tensorop internal/tensorop "${check[@]}" "$bin/internal-tensorop.test" -test.short -test.v -test.run '^TestGPU(RandomShapes|RowBroadcast|SpecialValues)'
		part check-nn nn "${check[@]}" "$bin/nn.test" -test.short -test.v -test.run '/gpu$|Graph|Conv|Pool|Norm|Dropout|Upsample|Sparsemax|CTC|YOLO|Convert|RMSProp|Activate'
		part check-graph . "${check[@]}" "$bin/cupool.test" -test.short -test.v -test.run '^TestGraph'
		part check-battery cuda "${check[@]}" "$bin/cuda.test" -test.short -test.v -test.run '^TestConformance$/^device$|^TestGPURandomKernels$'
		;;
	*) echo "bench/validate.sh: no part $1; it has: driver native device managed pinned programs engine operations gorgonia examples several networks replay memcheck" >&2; exit 2 ;;
	esac
}
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "nvidia-smi shows no GPU"
[ $# -gt 0 ] || set -- driver native device managed pinned programs engine operations gorgonia examples several networks replay memcheck
for name in "$@"; do run "$name"; done
exit $failed
