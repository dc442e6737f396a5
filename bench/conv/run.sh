#!/usr/bin/env bash
# Checks and times the kernels of convolutions, and prints one table:
#
#   bench/conv/run.sh [double]   on a computer with nvcc and a GPU
#   bench/conv/run.sh check      small shapes on a CPU, which takes a C++ compiler
#
# Where Python has the package nvidia-cudnn, or CUDNN_HOME is set, cuDNN is timed
# too.
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if [ "${1:-}" = check ]; then
	"${CXX:-c++}" -std=gnu++17 -O2 -DON_CPU -I internal/fakecuda/libcuda -I internal/kernels -I bench/conv \
		-x c++ -o "$out/bench" bench/conv/conv_bench.cu
	exec "$out/bench"
fi
flags=()
cudnn=${CUDNN_HOME:-$(python3 -c 'import nvidia.cudnn as c; print(list(c.__path__)[0])' 2>/dev/null || true)}
if [ -n "$cudnn" ] && [ -f "$cudnn/include/cudnn.h" ]; then
	lib=$(ls "$cudnn"/lib/libcudnn.so* "$cudnn"/lib64/libcudnn.so* 2>/dev/null | head -1)
	flags+=(-DHAVE_CUDNN -I "$cudnn/include" -Xlinker "$lib" -Xlinker -rpath -Xlinker "$(dirname "$lib")")
	export LD_LIBRARY_PATH="$(dirname "$lib")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
	echo "cuDNN of $cudnn"
else
	echo "no cuDNN"
fi
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
nvcc -O3 -std=c++17 -arch="sm_$arch" -Xptxas -v -I internal/kernels -o "$out/bench" bench/conv/conv_bench.cu \
	${flags[@]+"${flags[@]}"} -lcublas 2>"$out/log" || { cat "$out/log"; exit 1; }
grep -A3 "Compiling entry function 'conv_" "$out/log" | grep -e Compiling -e spill -e Used || true
nvidia-smi --query-gpu=name,clocks.sm,clocks.max.sm --format=csv,noheader
"$out/bench" "$@"
