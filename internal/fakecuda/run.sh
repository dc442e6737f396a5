#!/usr/bin/env bash
# Runs a command with the stand-in CUDA driver library and the settings to
# build with it.
#
# usage: run.sh [-cuda DIR] COMMAND...
#
# DIR has include/cuda.h; without it, `cupool env` looks for a toolkit, and
# takes cupool's own header where there is none, or where DIR is "none". Without
# a C compiler the status is 3 and the command is not run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
find=()
if [ "${1:-}" = -cuda ]; then
	find=(-cuda none)
	[ "$2" = none ] || find=(-cuda "$(cd "$2" && pwd)")
	shift 2
fi
[ $# -gt 0 ] || { echo "usage: $0 [-cuda DIR] COMMAND..." >&2; exit 2; }
command -v "${CC:-cc}" >/dev/null || { echo "$0: no C compiler" >&2; exit 3; }

err=$(mktemp)
# What env says on standard error matters only when it fails: it does not know
# the libcuda built below.
settings=$(cd "$here/../.." && go run ./cmd/cupool env ${find[@]+"${find[@]}"} 2>"$err") || {
	cat "$err" >&2
	exit 3
}
eval "$settings"
rm -f "$err"
CUPOOL_LIBCUDA=$("$here/build.sh")
export CUPOOL_LIBCUDA
lib=$(dirname "$CUPOOL_LIBCUDA")
export CGO_LDFLAGS="-L$lib $CGO_LDFLAGS"
export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$@"
