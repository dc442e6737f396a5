#!/usr/bin/env bash
# Builds libcupool.so, and puts cupool.h beside it.
#
# usage: build.sh [DIR]
#
# DIR is build by default. Needs Go and gcc; CC=aarch64-linux-gnu-gcc builds for arm64. The library runs
# with glibc 2.28, as PyTorch's wheels do, where the system has a newer glibc, too. Prints the library's
# path, and the newest version of glibc that it needs to stderr; the status is 1 where that is newer
# than 2.28.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-$here/../build}"
out=$(cd "${1:-$here/../build}" && pwd)
cc=${CC:-gcc}

# glibc 2.34 moved these functions into libc.so.6, with new versions. The library is linked with
# stand-ins of the two that had them before, which newer systems have, too.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
machine=$("$cc" -dumpmachine)
case $machine in
x86_64-*) first=GLIBC_2.2.5 arch=amd64 ;;
aarch64-*) first=GLIBC_2.17 arch=arm64 ;;
*) echo "$0: no version of glibc's symbols is known for $machine" >&2; exit 2 ;;
esac
stand_in() { # NAME FUNCTION...
	local name=$1 f
	shift
	for f; do echo "void $f(void) {}"; done >"$work/$name.c"
	echo "$first { global: *; };" >"$work/$name.map"
	"$cc" -w -fno-builtin -shared -nostdlib -Wl,-soname,"$name" -Wl,--version-script="$work/$name.map" -o "$work/$name" "$work/$name.c"
}
stand_in libdl.so.2 dlopen dlsym dlclose dlerror
stand_in libpthread.so.0 pthread_{create,key_create,setspecific,sigmask,getattr_np,attr_getstack,attr_getstacksize} \
	pthread_rwlock_{rdlock,wrlock,unlock}

cd "$here"
CC=$cc GOARCH=$arch CGO_ENABLED=1 go build -trimpath -buildmode=c-shared -tags netgo,osusergo \
	-ldflags "-s -w -extldflags '-Wl,--version-script=$here/cupool.map -Wl,-soname,libcupool.so $work/libdl.so.2 $work/libpthread.so.0'" \
	-o "$out/libcupool.so" .
rm -f "$out/libcupool.h" # of cgo; the interface is cupool.h
cp cupool.h "$out/"
symbols=$(readelf -W --dyn-syms "$out/libcupool.so")
needs=$(grep -o 'GLIBC_[0-9.]*' <<<"$symbols" | sort -Vu | tail -1)
echo "$0: needs $needs" >&2
if [ "$(printf 'GLIBC_2.28\n%s\n' "$needs" | sort -V | tail -1)" != GLIBC_2.28 ]; then
	echo "$0: too new for glibc 2.28: $(grep -F "$needs" <<<"$symbols" | awk '{print $8}' | tr '\n' ' ')" >&2
	exit 1
fi
echo "$out/libcupool.so"
