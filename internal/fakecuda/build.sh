#!/usr/bin/env bash
# Builds the stand-ins for the CUDA driver library, cuBLAS and NCCL.
#
# usage: build.sh OUTDIR
#
# Leaves libcuda.so.1, and libcuda.so for linking, and libcublas.so.12 and
# libnccl.so.2 in OUTDIR. Needs a C compiler, a C++ compiler for the kernels of
# internal/kernels, and CUDA's headers (cuda.h of CUDA 11.0 or newer), which it looks
# for in CGO_CFLAGS, CUDA_HOME, CUDA_PATH and /usr/local/cuda; otherwise the
# compiler's own directories have to have them.
set -eu
[ $# -eq 1 ] || { echo "usage: $0 OUTDIR" >&2; exit 2; }
src=$(cd "$(dirname "$0")/libcuda" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)

includes=()
eval "flags=(${CGO_CFLAGS:-})" # with cgo's quotes, which are the shell's
for flag in ${flags[@]+"${flags[@]}"}; do
	case $flag in -I*) includes+=("$flag") ;; esac
done
for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
	[ -n "$home" ] && [ -f "$home/include/cuda.h" ] && includes+=("-I$home/include")
done

# Built under other names and then moved, as a test may be running with the
# last ones.
build() { # NAME.so.N SOURCE...
	local name=$1
	shift
	${CC:-cc} -std=gnu11 -O2 -g -Wall -Wextra -fPIC -shared -pthread \
		-Wl,-soname,"$name" ${includes[@]+"${includes[@]}"} -I"$src" \
		-o "$out/.$name.$$" "$@"
	mv "$out/.$name.$$" "$out/$name"
	ln -sf "$name" "$out/${name%.*}"
}

# The kernels need a C++ compiler; without one there are none.
emulate=
if command -v "${CXX:-c++}" >/dev/null; then
	emulate=$out/.emulate.$$.o
	trap 'rm -f "$emulate"' EXIT
	${CXX:-c++} -std=gnu++17 -O2 -g -Wall -Wextra -fPIC -pthread -I"$src" -c -o "$emulate" "$src/emulate.cc"
fi
build libcuda.so.1 "$src"/*.c $emulate -ldl ${emulate:+-lstdc++ -lm}
build libcublas.so.12 "$src/../libcublas/cublas.c" -L"$out" -lcuda
build libnccl.so.2 "$src/../libnccl"/*.c -L"$out" -lcuda -lrt
