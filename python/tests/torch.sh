#!/usr/bin/env bash
# Makes a stand-in of the package torch, as far as cupool.torch asks it before CUDA is used: its version, and libraries that have
# what the class takes from them.
#
# usage: TORCH_INCLUDE=DIR:DIR python/tests/torch.sh DIR VERSION        makes DIR/torch
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
IFS=: read -ra dirs <<<"${TORCH_INCLUDE:?the directories of the headers of PyTorch and CUDA}"
flags=("-std=$(python3 "$here/../cupool/torch/_build.py" --standard)" -fPIC -shared -Wall -Wextra -I"$here/../../capi" -I"$here/../cupool/src" -I"$here")
for dir in "${dirs[@]}"; do flags+=(-isystem "$dir"); done
mkdir -p "${1:?usage: python/tests/torch.sh DIR VERSION}/torch/lib"
cd "$1/torch"
# Not all that have CUDA's headers have this one.
echo '#include <cuda_runtime_api.h>' >cuda_runtime.h
flags+=(-idirafter .)
"${CXX:-g++}" "${flags[@]}" "$here/stand_in.cpp" -Wl,-soname,libc10.so -o lib/libc10.so
"${CXX:-g++}" -shared -x c++ /dev/null -Wl,-soname,libc10_cuda.so -o lib/libc10_cuda.so
cat >__init__.py <<END
import ctypes, os, types
for name in ("libc10.so", "libc10_cuda.so"):
    ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", name), ctypes.RTLD_GLOBAL)
__version__, Tensor = "${2:?usage: python/tests/torch.sh DIR VERSION}", type("Tensor", (), {})
version = types.SimpleNamespace(cuda="13.0")
_C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)
cuda = types.SimpleNamespace(is_initialized=lambda: False, _lazy_call=lambda f: None)
END
