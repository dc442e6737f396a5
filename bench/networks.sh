#!/usr/bin/env bash
# Trains the networks of examples/gorgonia on this machine's GPU, beside the same
# networks in PyTorch, in turn, and prints µs a step: one operation after the
# other ("eager") and as a CUDA graph ("graph").
#
# usage: bench/networks.sh [DIR]
#
# A GPU that is cold, or whose driver still compiles, takes several times as long for
# a step. So each figure is the median over the epochs of a training, or PyTorch's
# mean, after a warm-up by time, and stands beside the clock of the GPU meanwhile, in
# MHz. Below nine tenths of the GPU's highest clock "cold" is printed in its place.
#
# DIR (build/networks) gets what each printed. Variables:
#
#   ROUNDS     how often each is measured (2)
#   DURATION   how long a training of ours is measured, and how long the GPU is
#              warmed up before: by another training, and by PyTorch's steps (3)
#   MNIST      a directory with all of MNIST (the part that the example ships)
#   GORGONIA   go build ./examples/gorgonia made elsewhere, for a machine without Go
#   PYTHON     a Python with PyTorch (python3); without one its columns stay empty
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/networks}
mkdir -p "$out"
rm -f "$out"/*.json "$out"/*.clock
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

# clock FILE runs the rest of its arguments, and appends the median of the GPU's
# clock in the second half of their time to FILE.
clock() {
	local file=$1 sampler status=0
	shift
	nvidia-smi --query-gpu=clocks.sm --format=csv,noheader,nounits --id=0 -lms 100 >"$out/clocks.txt" 2>>"$out/errors.txt" &
	sampler=$!
	"$@" || status=$?
	kill "$sampler" 2>/dev/null || true
	wait "$sampler" 2>/dev/null || true
	tail -n +$(($(wc -l <"$out/clocks.txt") / 2 + 1)) "$out/clocks.txt" | sort -n | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : 0 }' >>"$file"
	return "$status"
}
field() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p"; } # of a line of JSON

trained() { # NAME EPOCHS FLAG...
	local name=$1 epochs=$2
	shift 2
	"$ours" -device cuda ${flags[$name]} -epochs "$epochs" -json "$@" 2>>"$out/errors.txt" | tail -1
}
train() { # NAME HOW FLAG...
	local name=$1 how=$2 line epochs
	shift 2
	line=$(trained "$name" 2 "$@") # compiles, and says how many epochs fill the time
	epochs=$(awk -v us="$(field step_us_median <<<"$line")" -v steps="$(field steps <<<"$line")" -v s="$seconds" \
		'BEGIN { e = us * steps > 0 ? s * 1e6 / (us * steps / 2) : 0; print e < 5 ? 5 : int(e) }')
	trained "$name" "$epochs" "$@" >/dev/null
	clock "$out/ours-$name-$how.clock" trained "$name" "$epochs" "$@" >>"$out/ours-$name-$how.json"
}
torch() { # PEER HOW
	clock "$out/torch-$1-$2.clock" "${PYTHON:-python3}" bench/peers/torch_networks.py -how "$2" -seconds "$seconds" "$1" \
		>>"$out/torch-$1-$2.json" 2>>"$out/errors.txt"
}
peers=(convnet-50 convnet-128 lstm-cell lstm-fused resnet)
seconds=${DURATION:-3}
for ((round = 0; round < ${ROUNDS:-2}; round++)); do
	for name in "${names[@]}"; do
		train "$name" eager || echo "$0: $name: see $out/errors.txt" >&2
		train "$name" graph -graph || echo "$0: $name -graph: see $out/errors.txt" >&2
	done
	for peer in "${peers[@]}"; do
		torch "$peer" eager && torch "$peer" graph || echo "$0: no figures of PyTorch's $peer: see $out/errors.txt" >&2
	done
done

# The least figure of a training over the rounds and the lowest clock, or "cold".
figure() { # WHOSE KEY
	local least low
	[ -s "$out/$1.json" ] || return 0
	least=$(field "$2" <"$out/$1.json" | sort -g | head -1)
	low=$(sort -n "$out/$1.clock" | head -1)
	if [ "$((low * 10))" -lt "$((highest * 9))" ]; then
		least=cold
	fi
	echo "$least $low"
}
row() { # NAME PEER
	local how us mhz theirs at
	for how in eager graph; do
		read -r us mhz <<<"$(figure "ours-$1-$how" step_us_median)"
		read -r theirs at <<<"$(figure "torch-$2-$how" us)"
		printf '%-12s %-6s %10s %6s  %-10s %10s %6s\n' "$1" "$how" "$us" "$mhz" "$2" "$theirs" "$at"
	done
}
highest=$(nvidia-smi --query-gpu=clocks.max.sm --format=csv,noheader,nounits --id=0)
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo "highest clock $highest MHz"
printf '%-12s %-6s %10s %6s  %-10s %10s %6s\n' network how cupool MHz PyTorch µs MHz
row convnet-50 convnet-50
row convnet-128 convnet-128
row lstm lstm-cell
row lstm lstm-fused
row resnet resnet
