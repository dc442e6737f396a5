#!/usr/bin/env bash
# Builds the test of the class: TORCH_INCLUDE=DIR:DIR python/tests/build.sh OUTPUT
set -euo pipefail
cd "$(dirname "$0")/.."
flags=(-std=c++17 -g -O1 -Wall -Wextra ${CXXFLAGS:-} -I"${CUPOOL_INCLUDE:-../capi}" -Icupool/src)
IFS=: read -ra dirs <<<"${TORCH_INCLUDE:?the directories of the headers of PyTorch and CUDA}"
for dir in "${dirs[@]}"; do flags+=(-isystem "$dir"); done
# One unit, since the headers take most of the time.
for source in tests/stand_in.cpp tests/class_test.cpp cupool/src/*.cpp; do echo "#include \"$PWD/$source\""; done |
	"${CXX:-g++}" "${flags[@]}" -Itests -x c++ - -o "${1:?usage: python/tests/build.sh OUTPUT}" -ldl -lpthread
