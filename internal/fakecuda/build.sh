#!/usr/bin/env bash
# Builds the stand-in for the CUDA driver library.
#
# usage: build.sh OUTDIR
#
# Leaves libcuda.so.1, and libcuda.so for linking, in OUTDIR. Needs a C
# compiler and CUDA's headers (cuda.h of CUDA 11.0 or newer), which it looks
# for in CGO_CFLAGS, CUDA_HOME, CUDA_PATH and /usr/local/cuda; otherwise the
# compiler's own directories have to have them.
set -eu
[ $# -eq 1 ] || { echo "usage: $0 OUTDIR" >&2; exit 2; }
src=$(cd "$(dirname "$0")/libcuda" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)

includes=()
for flag in ${CGO_CFLAGS:-}; do
	case $flag in -I*) includes+=("$flag") ;; esac
done
for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
	[ -n "$home" ] && [ -f "$home/include/cuda.h" ] && includes+=("-I$home/include")
done

# Built under another name and then moved, as a test may be running with the
# last one.
${CC:-cc} -std=gnu11 -O2 -g -Wall -Wextra -fPIC -shared -pthread \
	-Wl,-soname,libcuda.so.1 ${includes[@]+"${includes[@]}"} \
	-o "$out/.libcuda.so.1.$$" "$src"/*.c -ldl
mv "$out/.libcuda.so.1.$$" "$out/libcuda.so.1"
ln -sf libcuda.so.1 "$out/libcuda.so"
