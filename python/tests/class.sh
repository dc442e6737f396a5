#!/usr/bin/env bash
# Compiles the class for PyTorch as it is shipped, but with AddressSanitizer and every warning an error, looks at what it
# takes of PyTorch's libraries, and runs its test over stand-ins of these and of the driver.
#
# usage: python/tests/class.sh DIR [TEST...]
#
# LIBCUPOOL and CUPOOL_LIBCUDA name the library and the stand-in driver, TORCH_INCLUDE the headers of PyTorch and CUDA: each version in
# testdata after the other, and those of ../shared/cuda or a toolkit, by default. CXXFLAGS is for the class and its test.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?usage: python/tests/class.sh DIR [TEST...]}"
out=$(cd "$1" && pwd)
shift
if [ -z "${TORCH_INCLUDE:-}" ]; then
	cuda=$here/../../../shared/cuda/include
	[ -d "$cuda" ] || cuda=/usr/local/cuda/include
	for headers in "$here"/../testdata/torch-*/include; do
		version=$(basename "$(dirname "$headers")")
		echo "$version"
		TORCH_INCLUDE=$headers:$cuda "$0" "$out/$version" "$@"
	done
	exit
fi
IFS=: read -ra dirs <<<"$TORCH_INCLUDE"
std=$(python3 "$here/../cupool/torch/_build.py" --standard)
flags=(-g -fsanitize=address -Werror ${CXXFLAGS:-})
python3 "$here/../cupool/torch/_build.py" "$out/cupool_torch.so" -O1 "${flags[@]}" &
"$here/torch.sh" "$out" 2.11.0
wait $!

# What is no symbol of these is the system's, or the test cannot be linked. The compiler's instruments take typeinfo of their own.
missing=$(nm -DuC "$out/cupool_torch.so" | sed 's/^ *U //' | grep -E 'c10|at::|torch::|cuda' | LC_ALL=C sort | LC_ALL=C comm -23 - "$here/symbols.txt")
if [ -n "$missing" ]; then
	printf 'not in python/tests/symbols.txt, which is what PyTorch and CUDA are known to have:\n%s\n' "$missing"
	exit 1
fi

for dir in "${dirs[@]}"; do flags+=(-isystem "$dir"); done
flags+=(-I "$here/../../capi" -idirafter "$out/torch")
"${CXX:-g++}" "-std=$std" -Wall -Wextra "${flags[@]}" "$here/class_test.cpp" "$out/cupool_torch.so" "$out"/torch/lib/*.so -ldl -lpthread \
	-Wl,-z,now "-Wl,-rpath,$out:$out/torch/lib" -o "$out/class_test"
CUPOOL_LIBRARY=${LIBCUPOOL:?libcupool.so} "$out/class_test" "$@"
