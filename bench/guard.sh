#!/usr/bin/env bash
# Measures the rows of speed that matter as multiples of a ruler: an uncontended pair of
# Lock and Unlock of a sync.Mutex, such pairs of as many goroutines, or a memset of 1 MiB.
# Prints them beside those of bench/testdata/guard.txt, and fails where a row is slower by
# half or more.
#
# usage: bench/guard.sh [-write]
#
# -write puts what was measured into the file, for the processor of this machine: on an
# idle machine, after a change that made a row faster, or slower for a good reason. The
# multiples differ by processor. Where the file has none for this one, the table alone is
# printed.
#
# A row and its ruler run in turn, many times in each of ROUNDS (3) rounds, most for a
# millisecond or two, and the least counts: a busy machine makes rows slower and none faster,
# and leaves so short a time alone now and then. A pool of virtual memory runs for thirty, as
# it grows at first. A row that is too slow is measured up to
# ten times more, ten seconds apart: neighbours of a machine may take longer than a round.
set -euo pipefail
cd "$(dirname "$0")/.."
file=bench/testdata/guard.txt
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go test -c -o "$dir/test" .

# Rows, operations and goroutines of a run, runs of a round, and rulers.
rows='Hit/size=1MiB 30000 1 30 mutex-pair
ParallelHit/stream=own 100000 16 60 mutex-pairs
RandomLive1000/backing=segments 2000 1 20 mutex-pair
RandomLive1000/backing=auto 100000 1 4 mutex-pair
CrossStream/device=idle 10000 1 30 mutex-pair
CrossStream/device=busy 6000 1 20 mutex-pair
MissSplit 10000 1 30 mutex-pair
Trim1000 3 1 5 mutex-pair
EngineAllocFree/zeroing=off/bytes=1048576 10000 1 30 mutex-pair
EngineAllocFree/zeroing=on/bytes=1048576 60 1 30 memset'
processor=$(awk -F'\t*: *' '/^(model name|cpu family|model)\t/ { p[$1] = $2 } /^$/ { exit } END { if (p["model name"]) print p["model name"], p["cpu family"] "." p["model"] }' /proc/cpuinfo 2>/dev/null || true)
processor=${processor:-$(uname -sm)}

# measure ROW.. notes a round of a row, without the driver's part, and of its ruler.
measure() {
	run "$1" "$1" row "$2" "$3" "$4"
	local -A operations=([mutex-pair]=50000 [mutex-pairs]=300000 [memset]=20)
	run "$1" "Ruler/$5" ruler "${operations[$5]}" "$3" 30
}
run() { # ROW BENCHMARK AS OPERATIONS GOROUTINES RUNS
	"$dir/test" -test.run '^$' -test.benchtime "$4x" -test.cpu "$5" -test.count "$6" -test.bench "^Benchmark${2//\//\$/^}\$" |
		awk -v row="$1" -v as="$3" -v OFS='\t' '/ns\/op/ {
			for (i = 5; i < NF; i += 2) if ($1 ~ /RandomLive/ && $(i + 1) == "driver-ns/op") $3 -= $i
			if (least == "" || $3 < least) least = $3
		} END { print row, as, least }' >>"$dir/times"
}

# multiples prints each row, its multiple, and the one in the file or "-".
multiples() {
	awk -F'\t' -v OFS='\t' -v processor="$processor" '
		FNR == 1 { files++ }
		files == 1 { if ($1 == processor) known[$2] = $3; next }
		!($1 in row) { row[$1] = ++n; name[n] = $1 }
		!(($1, $2) in least) || $3 < least[$1, $2] { least[$1, $2] = $3 }
		END { for (i = 1; i <= n; i++) printf "%s\t%.3g\t%s\n", name[i], least[name[i], "row"] / least[name[i], "ruler"], name[i] in known ? known[name[i]] : "-" }
	' "$file" "$dir/times"
}
slow() { multiples | awk -F'\t' '$3 != "-" && $2 >= 1.5 * $3 { print $1 }'; }

for ((round = 0; round < ${ROUNDS:-3}; round++)); do
	while read -r row; do measure $row; done <<<"$rows"
done
if [ "${1:-}" = -write ]; then
	{
		awk -F'\t' -v processor="$processor" '$1 != processor' "$file"
		multiples | awk -F'\t' -v OFS='\t' -v processor="$processor" '{ print processor, $1, $2 }'
	} >"$dir/new"
	LC_ALL=C sort "$dir/new" >"$file"
fi
for _ in {1..10}; do
	again=$(slow)
	[ -n "$again" ] || break
	sleep 10
	while read -r row; do
		measure $(grep "^$row " <<<"$rows")
	done <<<"$again"
done
echo "multiples of a ruler on $processor, and those in $file"
multiples | awk -F'\t' '{ printf "%-44s %8s   %8s  %s\n", $1, $2, $3, $3 == "-" ? "" : sprintf("%+.0f %%", 100 * ($2 / $3 - 1)) }'
if [ -n "$(slow)" ]; then
	echo "$0: slower by half or more:" $(slow)
	exit 1
fi
