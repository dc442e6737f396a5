#!/usr/bin/env bash
# Runs PyTorch on cupool on this machine's GPU, beside PyTorch's own allocators, and prints tables.
#
# usage: bench/torch.sh [DIR]
#
# DIR (build/torch) gets the output of everything that fails, and the lines that the tables are made of. Variables:
#
#   PARTS      what to run, of: probes programs exact serving ranks tests (probes programs serving)
#   PYTHON     a Python with PyTorch (python3)
#   LIBCUPOOL  libcupool.so made elsewhere, for a machine without Go
#   NAMES      programs (resnet50 gpt2 prefetch rl fsdp threads serve trainer accelerate lightning)
#   RANKED     programs on all GPUs of the machine, of ranks.py (ddp hook sharded sharded_before experts tensors stages
#              buffers symmetric)
#   ALLOCATORS beside each other (default expandable cupool)
#   JOBS       probes, and files of tests, at a time (6)
#   SOURCE     a directory with PyTorch's source of this release, for its tests; nothing is fetched
#   LIMIT      the seconds that one program or file of tests may take (300)
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/torch}
mkdir -p "$out"
out=$(cd "$out" && pwd)
parts=" ${PARTS:-probes programs serving} "
python=${PYTHON:-python3}
jobs=${JOBS:-6}
limit=${LIMIT:-300}
read -ra allocators <<<"${ALLOCATORS:-default expandable cupool}"
read -ra names <<<"${NAMES:-resnet50 gpt2 prefetch rl fsdp threads serve trainer accelerate lightning}"
read -ra ranked <<<"${RANKED:-ddp hook sharded sharded_before experts tensors stages buffers symmetric}"

python/build.sh "$python" >"$out/build.txt" 2>&1 || { cat "$out/build.txt"; exit 1; }
"$python" - <<-'END'
	import torch
	print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}")
END

# lines FILE COMMAND...: appends the line of JSON that a program prints, or says that it failed.
lines() {
	local file=$1 log
	shift
	log=$out/$(basename "$file" .json)-${*: -2:1}-${*: -1}.txt
	if timeout "$limit" "$@" >"$log" 2>&1 && grep '^{"name"' "$log" >>"$file"; then
		rm "$log"
	else
		echo "failed: ${*: -2}: $(tail -n 1 "$log" | cut -c 1-200)"
	fi
}

# rows PART PROGRAM NAME...: the lines of a program for each name and allocator, as a table.
rows() {
	local file=$out/$1.json program=$2 name allocator
	: >"$file"
	for name in "${@:3}"; do
		for allocator in "${allocators[@]}"; do
			lines "$file" "$python" "bench/torch/$program" "$name" "$allocator"
		done
	done
	"$python" bench/torch/table.py <"$file"
}

if [[ $parts == *" probes "* ]]; then
	for allocator in "${allocators[@]}"; do
		printf '\n== probes, %s\n' "$allocator"
		LOGS=$out "$python" bench/torch/probe.py all "$allocator" "$jobs" | tee "$out/probes-$allocator.txt" || true
	done
fi
if [[ $parts == *" programs "* ]]; then
	printf '\n== programs, one after the other (MiB, seconds)\n'
	rows programs programs.py "${names[@]}"
fi
if [[ $parts == *" exact "* ]]; then
	printf '\n== the same with deterministic algorithms: are the results equal to the bit?\n'
	: >"$out/exact.json"
	for name in "${names[@]}"; do
		for allocator in default cupool; do
			EXACT=1 lines "$out/exact.json" "$python" bench/torch/programs.py "$name" "$allocator" &
		done
		wait
	done
	"$python" bench/torch/table.py <"$out/exact.json"
fi
if [[ $parts == *" serving "* ]]; then
	printf '\n== serving: a graph for each of 32 batch sizes in one pool (MiB, seconds)\n'
	rows serving serving.py down up
fi
if [[ $parts == *" ranks "* ]]; then
	printf '\n== programs on all GPUs, a process for each (MiB, seconds)\n'
	rows ranks ranks.py "${ranked[@]}"
fi
if [[ $parts == *" tests "* ]]; then
	source=${SOURCE:?a directory with the source of PyTorch}
	printf "\n== PyTorch's own tests\n"
	one() { # ALLOCATOR FILE PART/PARTS EXPRESSION
		local log
		log=$out/tests-$1-$(tr / - <<<"$2-${3%/*}").txt
		timeout "$limit" "$python" bench/torch/run_test.py "$1" "$source/test/$2" "$3" ${4:+-k "$4"} >"$log" 2>&1 </dev/null || true
		printf '%-40s %-5s %-10s %s\n' "$2" "$3" "$1" "$(grep -E '^[0-9=]* ?[0-9]+ (passed|failed|skipped|error)|passed|failed' "$log" | tail -n 1 | tr -d =)"
	}
	export -f one
	export python source out limit
	for allocator in "${allocators[@]}"; do
		[ "$allocator" != expandable ] || continue
		while read -r file parts expression; do
			[[ $file != \#* && -n $file ]] || continue
			for ((part = 0; part < parts; part++)); do
				printf '%s\0%s\0%s\0%s\0' "$allocator" "$file" "$part/$parts" "$expression"
			done
		done <bench/torch/tests.txt
	done | xargs -0 -n 4 -P "$jobs" bash -c 'one "$@"' one
	# A file that cannot be read fails alike with both, and says nothing.
	printf '\n'
	for allocator in default cupool; do
		[[ " ${allocators[*]} " == *" $allocator "* ]] || continue
		passed=$(grep -ohE '[0-9]+ passed' "$out"/tests-"$allocator"-*.txt | awk '{ n += $1 } END { print n + 0 }' || true)
		echo "passed with $allocator: $passed"
		for log in "$out"/tests-"$allocator"-*.txt; do
			grep -qE '[0-9]+ (passed|failed)' "$log" || echo "  no test ran: $(basename "$log"): $(grep -E '^E  |rror' "$log" | head -n 1 | cut -c 1-120)"
		done
		[ "$passed" != 0 ] || exit 1
	done
	# Names that pass with PyTorch's allocator and not with ours.
	for allocator in default cupool; do
		grep -hE '^(FAILED|ERROR) ' "$out"/tests-"$allocator"-*.txt 2>/dev/null | sed 's/ - .*//; s|.*/test/||' | sort -u >"$out/failed-$allocator.txt" || true
	done
	printf '\nnot passed with cupool alone:\n'
	comm -13 "$out/failed-default.txt" "$out/failed-cupool.txt" || true
fi
