#!/usr/bin/env bash
# Makes the package usable from the tree, python/cupool: the class for the PyTorch that python3 has, in the cache, and
# libcupool.so beside the package. LIBCUPOOL names a library that was built before; else capi/build.sh makes one, which
# takes Go.
#
# usage: python/build.sh [PYTHON]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${1:-python3}
library=${LIBCUPOOL:-}
if [ -z "$library" ]; then
	library=$("$here/../capi/build.sh" "$here/../build")
fi
mkdir -p "$here/cupool/lib"
cp -f "$library" "$here/cupool/lib/libcupool.so"
PYTHONPATH=$here "$python" -c 'import cupool.torch; print(cupool.torch.binary())'
