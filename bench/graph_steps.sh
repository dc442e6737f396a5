#!/usr/bin/env bash
# Prints what a step of examples/mlp takes on this machine's GPU, by the number
# of steps in a graph and with and without Forks: step_us_median of each run,
# side by side.
#
# usage: bench/graph_steps.sh [FLAG...]
#
# The flags go to every run: -data DIR -hidden 512,256 -epochs 5, for the table
# of docs/performance.md. MLP names a binary that was built elsewhere, with
# -tags gpu; BATCHES, STEPS and ROUNDS what is run.
set -euo pipefail
cd "$(dirname "$0")/.."
mlp=${MLP:-}
if [ -z "$mlp" ]; then
	settings=$(go run ./cmd/cupool env) || { echo "$0: no build for CUDA: see above" >&2; exit 3; }
	eval "$settings"
	mkdir -p build
	mlp=build/mlp
	go build -tags gpu -o "$mlp" ./examples/mlp
fi

# row runs mlp with the script's flags and its own, ROUNDS times.
row() { # BATCH NAME FLAG...
	local batch=$1 name=$2 report
	shift 2
	printf '| %s | %s |' "$batch" "$name"
	for ((i = 0; i < ${ROUNDS:-3}; i++)); do
		report=$("$mlp" -device cuda -shift 0 -batch "$batch" "${flags[@]}" "$@" -json | tail -1)
		sed 's/.*"step_us_median":\([0-9.]*\).*/ \1/' <<<"$report" | tr -d '\n'
	done
	printf ' |\n'
}

flags=("$@")
printf '| batch | graphs of at most | µs a step |\n|---|---|---|\n'
for batch in ${BATCHES:-128 1024}; do
	row "$batch" "none"
	for steps in ${STEPS:-30 117 468}; do
		for fork in true false; do
			row "$batch" "$steps, fork $fork" -graph -graph-steps "$steps" -graph-fork="$fork"
		done
	done
done
