#!/usr/bin/env bash
# Builds the stand-ins for the CUDA driver library, cuBLAS and NCCL, unless that
# was done before, and prints the path of the first:
#
#   export CUPOOL_LIBCUDA=$(internal/fakecuda/build.sh)
#
# usage: build.sh [DIR]
#
# Leaves libcuda.so.1, libcublas.so.12 and libnccl.so.2 in DIR, with libcuda.so
# for programs that link it. DIR is one in the user's cache by default, whose
# name says what it was built from, so that Go takes no results of tests from
# its cache when that has changed. Needs a C compiler (CC); without one the status
# is 3. Kernels need a C++ compiler (CXX); without one there are none.
set -euo pipefail
export LC_ALL=C # the order of the sources
[ $# -le 1 ] || { echo "usage: $0 [DIR]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
read -ra cc <<<"${CC:-cc}"
read -ra cxx <<<"${CXX:-c++}"
command -v "${cc[0]}" >/dev/null || { echo "$0: there is no C compiler ${cc[0]}: install one, or set CC" >&2; exit 3; }
command -v "${cxx[0]}" >/dev/null || cxx=()

key=$({
	echo "${cc[@]}" : ${cxx[@]+"${cxx[@]}"}
	"${cc[@]}" --version
	[ ${#cxx[@]} = 0 ] || "${cxx[@]}" --version
	cat "$here"/build.sh "$here"/lib*/* "$here"/../kernels/*.cu "$here"/../kernels/*.h
} | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cupool/fakecuda
mkdir -p "${1:-$cache/$key}"
out=$(cd "${1:-$cache/$key}" && pwd)

exec 9>"$out/.lock"
flock 9 2>/dev/null || true # where there is no flock, two at once do the same
if [ "$(cat "$out/.built" 2>/dev/null)" = "$key" ]; then
	touch "$out" # when it was used last
	echo "$out/libcuda.so.1"
	exit
fi
tmp=$(mktemp -d "$out/.build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" # where the compilers leave objects

flags=(-O2 -Wall -Wextra -fPIC -pthread -I"$here/libcuda")
jobs=()
if [ ${#cxx[@]} -gt 0 ]; then
	for source in "$here"/../kernels/{conv,kernels,linear}.cu "$here/libcuda/emulate.cc"; do
		"${cxx[@]}" -x c++ -std=gnu++17 "${flags[@]}" -c "$source" &
		jobs+=($!)
	done
fi
for library in libcuda libcublas libnccl; do
	mkdir $library
	(cd $library && exec "${cc[@]}" -std=gnu11 "${flags[@]}" -c "$here/$library"/*.c) &
	jobs+=($!)
done
status=0
for job in "${jobs[@]}"; do wait "$job" || status=1; done
[ $status = 0 ] || exit 1

# They are opened by their paths: the others find libcuda beside them.
link() { # NAME.so.N ARGUMENT...
	"${cc[@]}" -shared -pthread -Wl,-soname,"$1" -Wl,-rpath,'$ORIGIN' -o "$@"
}
[ ${#cxx[@]} = 0 ] || kernels=(*.o -lstdc++ -lm)
link libcuda.so.1 libcuda/*.o ${kernels[@]+"${kernels[@]}"} -ldl
link libcublas.so.12 libcublas/*.o libcuda.so.1
link libnccl.so.2 libnccl/*.o libcuda.so.1 -lrt
ln -s libcuda.so.1 libcuda.so
echo "$key" >.built
mv -f lib*.so* "$out" # not over the files, as a test may be running with them
mv -f .built "$out"
find "$cache" -mindepth 1 -maxdepth 1 -mtime +7 -exec rm -rf {} + 2>/dev/null || true # of other sources
echo "$out/libcuda.so.1"
