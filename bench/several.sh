#!/usr/bin/env bash
# Runs on the GPUs of this machine, two or more, what docs/several-gpus.md reports, and
# prints a line for each part, and then a table.
#
# usage: bench/several.sh [-build DIR | PART...]
#
#   -build DIR   fills DIR with the binaries, for a machine without Go
#
# Parts (all of them, if none is named):
#
#   devices, nccl, mlp, dist, ipc
#              the tests of these packages, on as many GPUs as they take; with mlp, those
#              of both examples that train on several
#   allreduce  NCCL's sums of pool memory, beside PyTorch's
#   training   examples/mlp, and the residual network of examples/gorgonia, on one GPU
#              and on all, beside PyTorch's DistributedDataParallel: the time of a
#              step, and whether the losses are those of one GPU
#
# Variables:
#
#   OUT               a directory for what the parts print (build/several)
#   CUPOOL_BINARIES   the directory that -build filled
#   PYTHON            a Python with PyTorch (python3)
#   LIMIT             seconds for all parts together (520): what comes later is left out
#   GPUS              how many GPUs there are, where nvidia-smi does not say it
#
# A part that fails or takes too long does not stop the others; the status is then 1.
# NVLink's multicast stays off.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
root=$PWD

packages=(devices ipc dist nccl examples/mlp examples/gorgonia)
build() { # DIR
	mkdir -p "$1"
	local package
	for package in "${packages[@]}"; do
		go test -c -ldflags='-s -w' -o "$1/${package//\//-}.test" "./$package" || return
	done
	go build -ldflags='-s -w' -o "$1/" ./examples/mlp ./examples/gorgonia
}
# ranks runs a command for each of so many ranks, which meet at a port of this machine.
ranks() { # N PORT COMMAND...
	local n=$1 i status=0 pids=()
	export WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$2 CUPOOL_DIST_TOKEN=several
	shift 2
	for ((i = 0; i < n; i++)); do
		RANK=$i LOCAL_RANK=$i "$@" &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i" || status=$?; done
	return $status
}
case ${1:-} in
-build) build "${2:?bench/several.sh: -build needs a directory}"; exit ;;
-ranks) shift; ranks "$@"; exit ;; # what a part of several processes runs
esac
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 TORCH_NCCL_ASYNC_ERROR_HANDLING=0 PYTHONUNBUFFERED=1
out=${OUT:-build/several}
mkdir -p "$out"
bin=${CUPOOL_BINARIES:-}
if [ -z "$bin" ]; then
	bin=build/several-binaries
	build "$bin" || exit
fi
# PyTorch's NCCL, so that both have the same.
nccl=$("${PYTHON:-python3}" -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib")' 2>/dev/null) && export LD_LIBRARY_PATH=$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
out=$(realpath "$out") bin=$(realpath "$bin") python=${PYTHON:-python3}
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | wc -l)}
failed=() end=$((SECONDS + ${LIMIT:-520}))

# part runs a command in a directory, adds what it prints to a file, and prints the
# line.
part() { # NAME FILE SECONDS DIRECTORY COMMAND...
	local name=$1 log=$out/$2 limit=$3 dir=$4 from=$SECONDS status=0 word=ok tests=
	shift 4
	limit=$((limit < end - SECONDS ? limit : end - SECONDS))
	if [ $limit -lt 10 ]; then
		failed+=("$name")
		printf '%-20s left out: no time is left\n' "$name"
		return
	fi
	echo "=== $name: ${*#"$root"/}" >>"$log"
	local begin=$(($(wc -l <"$log") + 1))
	(cd "$root/$dir" && timeout -k 5 "$limit" "$@") >>"$log" 2>&1 || status=$?
	count() { tail -n +$begin "$log" | grep -cE "^ *--- $1: "; }
	[ $status = 0 ] || word="FAILED (status $status, see ${log##*/})"
	[ $status = 0 ] || failed+=("$name")
	if tail -n +$begin "$log" | grep -qE '^ *--- '; then
		tests="$(count PASS) passed, $(count SKIP) skipped, $(count FAIL) failed"
	fi
	printf '%-20s %4d s  %-40s %s\n' "$name" $((SECONDS - from)) "$tests" "$word"
}
tests() { # PACKAGE SECONDS [FLAG...]
	local package=$1 limit=$2
	shift 2
	local file=tests-${package##*/}.txt
	[ "$package" != examples/gorgonia ] || file=tests-mlp.txt # at most eight files
	part "$package" "$file" "$limit" "$package" "$bin/${package//\//-}.test" -test.v -test.timeout "$((limit - 5))s" "$@"
	grep -q '^ *--- PASS' "$out/$file" || failed+=("$package ran nothing")
}
# together is part for the ranks of so many processes, each with torchrun's variables.
port=$((29000 + RANDOM % 2000))
together() { # N NAME FILE SECONDS COMMAND...
	local n=$1 name=$2 file=$3 limit=$4
	shift 4
	port=$((port + 1))
	part "$name" "$file" "$limit" . bench/several.sh -ranks "$n" "$port" "$@"
}
# counts are the numbers of GPUs that a training takes.
counts() { [ "$gpus" -gt 1 ] && echo 1 "$gpus" || echo 1; }

# The perceptron. EPOCHS and BATCH make it small on the stand-in.
mlp=(-device cuda -shift 0 -batch "${BATCH:-1000}" -hidden "${HIDDEN:-2048,2048}" -epochs "${EPOCHS:-6}" -lr 0.02)
small=(${TRAIN_SAMPLES:+-train-samples "$TRAIN_SAMPLES" -test-samples "$TRAIN_SAMPLES"})
mlp+=("${small[@]}")

run() { # PART
	local n graph batch
	case $1 in
	devices) tests devices 60 ;;
	ipc) tests ipc 60 ;;
	dist) tests dist 60 ;;
	nccl) tests nccl 170 ;;
	mlp)
		tests examples/mlp 140 -test.run 'TestGPUs|TestProcesses|TestKilled'
		tests examples/gorgonia 60 -test.run TestRanks
		;;
	allreduce)
		part "allreduce" allreduce.txt 70 nccl "$bin/nccl.test" -test.run '^$' -test.bench Bandwidth -test.benchtime "${BENCHTIME:-0.1s}" -test.timeout 65s
		together "$gpus" allreduce-torch allreduce.txt 60 "$python" bench/peers/torch_allreduce.py
		;;
	training)
		for n in $(counts); do
			for graph in "" -graph; do
				part "mlp-$n$graph" training.txt 30 . "$bin/mlp" "${mlp[@]}" -gpus "$n" $graph -json
			done
		done
		[ "$gpus" = 1 ] || together "$gpus" mlp-processes training.txt 30 "$bin/mlp" "${mlp[@]}" -json
		for n in $(counts); do
			together "$n" "gorgonia-mlp-$n" training.txt 30 "$bin/gorgonia" "${mlp[@]}" -json
			for batch in ${RESNET_BATCHES:-64 1024}; do
				for graph in "" -graph; do
					together "$n" "resnet-$batch-$n$graph" training.txt 30 "$bin/gorgonia" -net resnet -device cuda -shift 0 -batch "$batch" -epochs "${EPOCHS:-3}" "${small[@]}" $graph -json
				done
			done
			together "$n" "torch-$n" training.txt 60 "$python" bench/peers/torch_ddp.py -batch "${BATCH:-1000}" -hidden "${HIDDEN:-2048,2048}"
		done
		;;
	*) echo "bench/several.sh: no part $1; it has: devices nccl mlp allreduce training dist ipc" >&2; exit 2 ;;
	esac
}

# The table: of each training the median time of a step and the loss of each epoch.
table() {
	local log=$out/training.txt
	[ -f "$log" ] || return
	awk '
		function row() { if (name != "") printf "%-22s %10s  %s\n", name, us, losses; us = losses = "" }
		/^=== / { row(); name = $2; sub(/:$/, "", name) }
		match($0, /"step_us_median": *[0-9.]+/) { us = substr($0, RSTART, RLENGTH); sub(/.*: */, "", us) }
		/^epoch / { for (i = 1; i < NF; i++) if ($i == "loss") losses = losses " " $(i + 1) }
		/^\{"network"/ { print }
		END { row() }' "$log"
	echo "one GPU's losses, and those of all:"
	awk -v tolerance=0.002 '
		/^=== / { name = $2; sub(/:$/, "", name) }
		/^epoch / && name ~ /^(gorgonia-)?mlp-/ {
			split(name, parts, /mlp-/)
			for (i = 1; i < NF; i++) if ($i == "loss") {
				k = parts[1] " " $2
				if (!(k in want)) want[k] = $(i + 1)
				d = want[k] - $(i + 1); if (d < 0) d = -d
				if (!(name in most) || d > most[name]) most[name] = d
			}
		}
		END { for (n in most) { printf "%-22s at most %.4f apart\n", n, most[n]; if (most[n] > tolerance) bad = 1 } exit bad }' "$log" || failed+=(losses)
}
sums() {
	local log=$out/allreduce.txt
	[ -f "$log" ] || return
	awk '
		/^BenchmarkBandwidth/ {
			match($1, /\/(segments|virtual)/); backing = substr($1, RSTART + 1, RLENGTH - 1)
			match($1, /MiB=[0-9]+/); mib = substr($1, RSTART + 4, RLENGTH - 4)
			how = ($1 ~ /registered=true/ ? "registered " : "") ($1 ~ /captured=true/ ? "graph" : "calls")
			for (i = 2; i < NF; i++) { if ($(i + 1) == "µs/sum") us = $i; if ($(i + 1) == "GB/s") gb = $i }
			put(backing, us, gb)
		}
		/^\{"MiB"/ {
			match($0, /"MiB": [0-9]+/); mib = substr($0, RSTART + 7, RLENGTH - 7)
			how = ($0 ~ /"registered": true/ ? "registered " : "") ($0 ~ /"captured": true/ ? "graph" : "calls")
			match($0, /"us": [0-9.]+/); us = substr($0, RSTART + 6, RLENGTH - 6)
			match($0, /"GB\/s": [0-9.]+/); put("PyTorch", us, substr($0, RSTART + 8, RLENGTH - 8))
		}
		function put(who, us, gb) { k = sprintf("%5d  %-16s", mib, how); keys[k] = 1; of[k, who] = sprintf("%.0f µs %.0f GB/s", us, gb) }
		END {
			printf "%5s  %-16s  %-22s %-22s %-22s\n", "MiB", "how", "segments", "virtual", "PyTorch"
			n = 0; for (k in keys) order[++n] = k
			for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (order[j] < order[i]) { k = order[i]; order[i] = order[j]; order[j] = k }
			for (i = 1; i <= n; i++) { k = order[i]; printf "%s  %-22s %-22s %-22s\n", k, of[k, "segments"], of[k, "virtual"], of[k, "PyTorch"] }
		}' "$log"
}

{
	nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1
	nvidia-smi topo -m 2>&1
	"$python" -c 'import torch; print("PyTorch", torch.__version__, "NCCL", torch.cuda.nccl.version())' 2>&1
} | tee "$out/machine.txt"
gpus=$((gpus < 1 ? 1 : gpus))
[ $# -gt 0 ] || set -- devices nccl mlp allreduce training dist ipc
for name in "$@"; do run "$name"; done
sums
table
[ ${#failed[@]} = 0 ] || echo "failed: ${failed[*]}"
[ ${#failed[@]} = 0 ]
