#!/usr/bin/env bash
# Compiles the kernels to images.zip, which is committed, so that only who changes
# a kernel needs nvcc and Python 3.
#
#   PTXAS=/path/of/cuda-12.8/ptxas internal/kernels/build.sh [DIR]
#
# The ptxas is one of CUDA 12.8, the oldest that knows sm_120: drivers of CUDA 12 do
# not load what a ptxas of CUDA 13 writes. nvcc may be of either. Without the
# variable it is the ptxas in PATH.
#
# The archive goes to DIR, or to internal/kernels/images. It has, for each module:
#
#   MODULE.ptx     PTX, which a driver compiles for any GPU from sm_75 on, the
#                  oldest that all current drivers serve. PTX 7.0, which drivers
#                  from CUDA 11.0 on read, has all that the kernels need: ptxas
#                  checks that when it assembles them.
#   MODULE.sm_NN   the machine code (SASS) of one architecture. It is assembled
#                  from that PTX, as a driver would, so that a kernel is the same
#                  program either way, and C++ is compiled once.
#
# and in "sources" the hash of all sources, as TestImagesAreUpToDate computes it.
set -euo pipefail
export LC_ALL=C # the order of the sources
architectures="80 86 89 90 100 120"
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-$here/images}"
to=$(cd "${1:-$here/images}" && pwd)
cd "$here"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

cat -- *.cu *.h | sha256sum | cut -d' ' -f1 >"$out/sources"

compile() { # MODULE SOURCE [FLAG]
	nvcc -ptx -arch=compute_75 -O3 -diag-suppress 177 ${3:-} -o "$out/$1.raw" "$2"
	sed -e '/^\/\//d' -e '/^$/d' -e 's/^\.version .*/.version 7.0/' "$out/$1.raw" >"$out/$1.ptx"
}
modules="kernels" jobs=()
compile kernels kernels.cu & jobs+=($!)
for name in linear conv; do
	compile "${name}_f32" $name.cu -DONLY_FLOAT & jobs+=($!)
	compile "${name}_f64" $name.cu -DONLY_DOUBLE & jobs+=($!)
	modules+=" ${name}_f32 ${name}_f64"
done
for job in "${jobs[@]}"; do wait "$job"; done

cd "$out"
for module in $modules; do
	echo "-arch=sm_75 -o /dev/null $module.ptx" # a check
	for sm in $architectures; do
		echo "-arch=sm_$sm -o $module.sm_$sm $module.ptx"
	done
done | xargs -P "$(nproc)" -L 1 "${PTXAS:-ptxas}"
python3 -m zipfile -c images.zip sources *.ptx *.sm_*
mv images.zip "$to/images.zip"
ls -l "$to/images.zip"
