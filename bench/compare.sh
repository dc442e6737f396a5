#!/usr/bin/env bash
# Compares the benchmarks of docs/performance.md of two revisions: builds a test
# binary of each, runs the two in turn, and prints benchstat's table.
#
# usage: bench/compare.sh BASE [HEAD]
#
# BASE and HEAD are revisions; without HEAD it is the working tree as it is.
# build/compare gets base.txt and head.txt, what the binaries printed. What the
# machine does besides falls on both alike, as they take turns. Variables:
#
#   BENCHMARKS  which ones, as a regular expression (those of docs/performance.md)
#   COUNT       how often each binary runs (10)
#   BENCHTIME   time for each benchmark of a run (0.3s)
#   CPUS        numbers of goroutines for BenchmarkParallelHit (1,2,4)
#   CPU         the processor for all else (empty: as the system likes)
#   PACKAGE     the package whose benchmarks these are (.)
#   CUPOOL_DEVICE  is for both: cuda for a GPU (the host device)
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:?usage: bench/compare.sh BASE [HEAD]}
head=${2:-}
bench=${BENCHMARKS:-'^Benchmark(Hit|ParallelHit|RandomLive1000|CrossStream|EngineAllocFree|MissSplit|Trim1000|Ruler)$'}
package=${PACKAGE:-.}
benchstat=${BENCHSTAT:-golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da}
parallel='^BenchmarkParallelHit$'
out=$PWD/build/compare
mkdir -p "$out"
rm -f "$out"/{base,head}.txt

trees=$(mktemp -d)
finish() {
	for name in base head; do
		[ ! -d "$trees/$name" ] || git worktree remove --force "$trees/$name"
	done
	rm -rf "$trees"
}
trap finish EXIT

declare -A tree
prepare() { # NAME REVISION: builds the binary of a revision, or of this tree
	tree[$1]=$PWD
	if [ -n "$2" ]; then
		tree[$1]=$trees/$1
		git worktree add --quiet --detach "${tree[$1]}" "$2"
	fi
	(cd "${tree[$1]}" && go test -c -o "$out/$1.test" "$package")
}
prepare base "$base"
prepare head "$head"

on=()
[ -z "${CPU:-}" ] || on=(taskset -c "$CPU")
run() { # NAME: one run of a binary, in the directory of its package
	local flags=(-test.run '^$' -test.benchmem -test.benchtime "${BENCHTIME:-0.3s}" -test.timeout 4h)
	(
		cd "${tree[$1]}/$package"
		"${on[@]}" "$out/$1.test" "${flags[@]}" -test.bench "$bench" -test.skip "$parallel"
		if [[ BenchmarkParallelHit =~ ${bench%%/*} ]]; then
			"$out/$1.test" "${flags[@]}" -test.bench "$parallel" -test.cpu "${CPUS:-1,2,4}"
		fi
	) >>"$out/$1.txt"
}
for ((i = 1; i <= ${COUNT:-10}; i++)); do
	echo "bench/compare.sh: run $i of ${COUNT:-10}" >&2
	run base
	run head
done
cd "$out"
go run "$benchstat" base.txt head.txt
