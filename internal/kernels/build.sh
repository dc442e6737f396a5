#!/usr/bin/env bash
# Compiles the kernels to PTX, which is committed, so that only who changes a
# kernel needs nvcc (any version from 11 on):
#
#   internal/kernels/build.sh
#
# compute_75 is the oldest GPU that all current drivers serve. PTX 7.0, which
# drivers from CUDA 11.0 on read, has all that the kernels need: ptxas checks
# that when it assembles them. The first line is the hash of all sources, as
# TestPTXIsUpToDate computes it.
set -eu
export LC_ALL=C # the order of the sources
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
sources=$(cat *.cu *.h | sha256sum | cut -d' ' -f1)

compile() { # MODULE SOURCE [FLAG]
	nvcc -ptx -arch=compute_75 -O3 -diag-suppress 177 ${3:-} -o "$out/$1.raw" "$2"
	{
		echo "// sources $sources"
		sed -e '/^\/\//d' -e '/^$/d' -e 's/^\.version .*/.version 7.0/' "$out/$1.raw"
	} >"$out/$1.ptx"
	local sm
	for sm in 75 80 90; do
		ptxas -arch="sm_$sm" -o /dev/null "$out/$1.ptx"
	done
	mv "$out/$1.ptx" "$1.ptx"
}
jobs=()
compile kernels kernels.cu & jobs+=($!)
for name in linear conv; do
	compile "${name}_f32" $name.cu -DONLY_FLOAT & jobs+=($!)
	compile "${name}_f64" $name.cu -DONLY_DOUBLE & jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job"; done
