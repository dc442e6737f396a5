#!/usr/bin/env bash
# Runs every fuzz target of the module in turn, and the random tests of tensors and of
# graphs, until one finds something.
# usage: bench/fuzz.sh [TIME [ROUNDS]]
# TIME is for each target, 1m unless given. ROUNDS is how often all of them run;
# 0 or nothing is without end. FUZZFLAGS are given to go test, such as
# "-parallel 2". With ONLY=random the random tests run alone, and with PROCESSES=n in n
# processes each. What fails is printed with the commands that repeat it.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-1m}
rounds=${2:-0}

# go test lists a package's targets and then its name.
targets=
if [ "${ONLY:-}" != random ]; then
	targets=$(go test -tags invariants -list '^Fuzz' work |
		awk '/^Fuzz/ { names[n++] = $1 } /^ok/ { for (i = 0; i < n; i++) print $2, names[i]; n = 0 } /^\?/ { n = 0 }')
	[ -n "$targets" ] || { echo "no fuzz targets" >&2; exit 1; }
fi

# random PACKAGE TEST SEED runs a random test.
random() {
	local args=(-count 1 -timeout 0 -run "^$2\$" "$1")
	CUPOOL_SEED=$3 CUPOOL_RANDOM=$time go test "${args[@]}" && return
	echo "to repeat all of it: CUPOOL_SEED=$3 CUPOOL_RANDOM=$time go test ${args[*]@Q}" >&2
	return 1
}

# Go 1.26 reports its own deadline as a failure at times, on a busy machine above all
# (go.dev/issue/75804): what a target fails at, it writes to a file and names.
ended_late() { grep -q '^ *context deadline exceeded$' "$1" && ! grep -q 'Failing input written to' "$1"; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT

for ((round = 1; rounds == 0 || round <= rounds; round++)); do
	while read -r package target; do
		[ -n "$package" ] || continue
		echo "== round $round: $package $target"
		# shellcheck disable=SC2086
		go test -tags invariants -fuzzminimizetime 20x ${FUZZFLAGS:-} -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" </dev/null | tee "$out" || ended_late "$out"
	done <<<"$targets"
	for test in ./internal/tensorop:TestRandomExpressions ./gorgoniavm:TestRandomMachines; do
		echo "== round $round: ${test/:/ }"
		running=()
		for ((i = 0; i < ${PROCESSES:-1}; i++)); do
			random "${test%:*}" "${test#*:}" "$(od -An -N8 -tu8 /dev/urandom | tr -d ' ')" &
			running+=($!)
		done
		failed=0
		for pid in "${running[@]}"; do wait "$pid" || failed=1; done
		[ $failed = 0 ] || exit 1
	done
done
