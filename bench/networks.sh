#!/usr/bin/env bash
# Trains the networks of examples/gorgonia on this machine's GPU, beside the same
# networks in PyTorch, in turn, and prints µs a step: one operation after the
# other ("eager") and as a CUDA graph ("graph").
#
# usage: bench/networks.sh [DIR]
#
# DIR (build/networks) gets what each printed. Variables:
#
#   ROUNDS     how often each is measured (2)
#   EPOCHS     epochs of a training of ours (2)
#   MNIST      a directory with all of MNIST (the part that the example ships)
#   GORGONIA   go build ./examples/gorgonia made elsewhere, for a machine without Go
#   PYTHON     a Python with PyTorch (python3); without one its columns stay empty
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/networks}
mkdir -p "$out"
rm -f "$out"/*.json
ours=${GORGONIA:-}
if [ -z "$ours" ]; then
	ours=$out/gorgonia
	go build -o "$ours" ./examples/gorgonia
fi

# The networks, and their flags.
images="-shift 0${MNIST:+ -data $MNIST}"
declare -A flags=(
	[convnet-50]="$images -net convnet -batch 50"
	[convnet-128]="$images -net convnet -batch 128"
	[lstm]="-net rnn -hidden 256 -steps 32 -batch 64"
	[resnet]="$images -net resnet -batch 64"
)
names=(convnet-50 convnet-128 lstm resnet)

train() { # NAME FILE FLAG...
	local name=$1 file=$2
	shift 2
	"$ours" -device cuda ${flags[$name]} -epochs "${EPOCHS:-2}" -json "$@" 2>>"$out/errors.txt" | tail -1 >>"$out/$file" ||
		echo "$0: $name $*: see $out/errors.txt" >&2
}
for ((round = 0; round < ${ROUNDS:-2}; round++)); do
	for name in "${names[@]}"; do
		train "$name" "ours-$name-eager.json"
		train "$name" "ours-$name-graph.json" -graph
	done
	"${PYTHON:-python3}" bench/peers/torch_networks.py >>"$out/pytorch.json" 2>>"$out/errors.txt" ||
		echo "$0: no figures of PyTorch: see $out/errors.txt" >&2
done

# The least of a number over the rounds, on lines with a text.
least() { # FILE TEXT KEY
	{ grep -s "$2" "$out/$1" || true; } | sed -n "s/.*\"$3\": *\([0-9.]*\).*/\1/p" | sort -g | head -1
}
row() { # NAME PEER
	local how
	for how in eager graph; do
		printf '%-12s %-6s %10s  %-10s %10s\n' "$1" "$how" "$(least "ours-$1-$how.json" . step_us_median)" "$2" "$(least pytorch.json "\"$2\"" "${how}_us")"
	done
}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
printf '%-12s %-6s %10s  %-10s %10s\n' network how cupool PyTorch µs
row convnet-50 convnet-50
row convnet-128 convnet-128
row lstm lstm-cell
row lstm lstm-fused
row resnet resnet
