#!/usr/bin/env bash
# Runs every fuzz target of the module in turn, and the random tests of tensors and of
# graphs, until one finds something.
# usage: bench/fuzz.sh [TIME [ROUNDS]]
# TIME is for each target, 1m unless given. ROUNDS is how often all of them run;
# 0 or nothing is without end. FUZZFLAGS are given to go test, such as
# "-parallel 2".
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-1m}
rounds=${2:-0}

# go test lists a package's targets and then its name.
targets=$(go test -tags invariants -list '^Fuzz' work |
	awk '/^Fuzz/ { names[n++] = $1 } /^ok/ { for (i = 0; i < n; i++) print $2, names[i]; n = 0 } /^\?/ { n = 0 }')
[ -n "$targets" ] || { echo "no fuzz targets" >&2; exit 1; }

for ((round = 1; rounds == 0 || round <= rounds; round++)); do
	while read -r package target; do
		echo "== round $round: $package $target"
		# shellcheck disable=SC2086
		go test -tags invariants -fuzzminimizetime 20x ${FUZZFLAGS:-} -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" </dev/null
	done <<<"$targets"
	for test in ./internal/tensorop:TestRandomExpressions ./gorgoniavm:TestRandomMachines; do
		echo "== round $round: ${test/:/ }"
		CUPOOL_RANDOM=$time go test -count 1 -timeout 0 -run "^${test#*:}\$" "${test%:*}"
	done
done
