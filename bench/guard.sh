#!/usr/bin/env bash
# Measures the rows of speed that matter as multiples of a ruler, an uncontended pair
# of Lock and Unlock of a sync.Mutex or a memset of 1 MiB, and prints them beside those
# of bench/testdata/guard.txt. It fails where a row is slower by half or more.
#
# usage: bench/guard.sh [-write]
#
# -write puts what was measured into the file, for the processor of this machine: on an
# idle machine, when a change made a row faster, or slower for a good reason. The
# multiples differ by processor. Where the file has none for this one, the table is
# printed alone.
#
# Each row is the least of ROUNDS (8) rounds of 20 ms in turn. A row that is too slow is
# measured up to three times as often, as a busy machine makes rows slower, and none faster.
set -euo pipefail
cd "$(dirname "$0")/.."
file=bench/testdata/guard.txt
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go test -c -o "$dir/test" .

# Rows and their rulers.
cat >"$dir/rows" <<-'EOF'
	Hit/size=1MiB                                mutex-pair
	RandomLive1000/backing=segments              mutex-pair
	RandomLive1000/backing=auto                  mutex-pair
	CrossStream/device=idle                      mutex-pair
	CrossStream/device=busy                      mutex-pair
	MissSplit                                    mutex-pair
	Trim1000                                     mutex-pair
	EngineAllocFree/zeroing=off/bytes=1048576    mutex-pair
	EngineAllocFree/zeroing=on/bytes=1048576     memset
EOF
benches=$({ awk '{ print $1 }' "$dir/rows"; printf 'Ruler/%s\n' mutex-pair memset; } | sed 's/.*/^Benchmark&$/; s,/,$/^,g' | paste -sd'|')
processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -1)
processor=${processor:-$(uname -m)}

measure() {
	local i
	for ((i = 0; i < ${ROUNDS:-8}; i++)); do
		"$dir/test" -test.run '^$' -test.cpu 1 -test.benchtime 20ms -test.bench "$benches" |
			awk '/ns\/op/ { sub(/^Benchmark/, "", $1); print $1, $3 }' >>"$dir/times"
	done
}

# multiples prints a row, its multiple, and the file's or "-", with tabs between them.
multiples() {
	awk -F'\t' -v processor="$processor" '
		FILENAME ~ /times$/ { split($0, t, " "); if (!(t[1] in least) || t[2] < least[t[1]]) least[t[1]] = t[2]; next }
		FILENAME ~ /guard.txt$/ { if ($1 == processor) known[$2] = $3; next }
		{ split($0, r, " "); printf "%s\t%.3g\t%s\n", r[1], least[r[1]] / least["Ruler/" r[2]], r[1] in known ? known[r[1]] : "-" }
	' "$dir/times" "$file" "$dir/rows"
}
slow() { multiples | awk -F'\t' '$3 != "-" && $2 >= 1.5 * $3' | grep -q .; }

measure
for again in 1 2; do
	if slow; then measure; fi
done
echo "multiples of a ruler on $processor"
multiples | awk -F'\t' '{ printf "%-44s %8s   %8s  %s\n", $1, $2, $3, $3 == "-" ? "" : sprintf("%+.0f %%", 100 * ($2 / $3 - 1)) }'
if [ "${1:-}" = -write ]; then
	multiples | awk -F'\t' -v OFS='\t' -v processor="$processor" '{ print processor, $1, $2 }' >"$dir/new"
	awk -F'\t' -v processor="$processor" '$1 != processor' "$file" >>"$dir/new"
	sort "$dir/new" >"$file"
elif slow; then
	echo "$0: a row is slower by half or more than $file says"
	exit 1
fi
