#!/usr/bin/env bash
# Compiles the kernels to PTX, which is committed, so that only who changes a
# kernel needs nvcc (any version from 11 on):
#
#   internal/kernels/build.sh
#
# compute_75 is the oldest GPU that all current drivers serve. PTX 7.0, which
# drivers from CUDA 11.0 on read, has all that the kernels need: ptxas checks
# that when it assembles them. The first line is the hash of the sources, as
# TestPTXIsUpToDate computes it.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

compile() { # MODULE, of MODULE.cu and the files that it includes
	local sources
	sources="kernel.h $1.cu $(sed -n 's/^#include "\(.*\)"/\1/p' "$1.cu")"
	nvcc -ptx -arch=compute_75 -O3 -o "$out/$1.raw" "$1.cu"
	{
		echo "// sources $(cat $sources | sha256sum | cut -d' ' -f1)"
		sed -e '/^\/\//d' -e '/^$/d' -e 's/^\.version .*/.version 7.0/' "$out/$1.raw"
	} >"$out/$1.ptx"
	for sm in 75 80 90; do
		ptxas -arch="sm_$sm" -o /dev/null "$out/$1.ptx"
	done
	mv "$out/$1.ptx" "$1.ptx"
}
compile kernels
