#!/usr/bin/env bash
# Compiles the kernels to kernels.ptx, which is committed, so that only who
# changes a kernel needs nvcc (any version from 11 on):
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
nvcc -ptx -arch=compute_75 -O3 -o "$out/raw.ptx" kernels.cu
{
	echo "// sources $(cat kernel.h kernels.cu elementwise.cu copy.cu reduce.cu softmax.cu layer.cu linear.cu conv.cu matmul.cu optimizer.cu random.cu | sha256sum | cut -d' ' -f1)"
	sed -e '/^\/\//d' -e '/^$/d' -e 's/^\.version .*/.version 7.0/' "$out/raw.ptx"
} >"$out/kernels.ptx"
for sm in 75 80 90; do
	ptxas -arch="sm_$sm" -o /dev/null "$out/kernels.ptx"
done
mv "$out/kernels.ptx" kernels.ptx
