#!/usr/bin/env bash
# Runs Gorgonia's own example programs on the tape machine and, with the line
# changed that makes it, on gorgoniavm, and compares what they print.
#
# usage: bench/programs.sh [PROGRAM...]
#
# It takes their sources from the module cache, lets them train for less time on
# a few images of testdata/mnist, and builds them with the tag faketime: Gorgonia
# draws weights and dropout from generators that the time seeds, and so both
# machines draw the same. Go fetches what the programs import besides. The
# last losses of every program are printed, and "the same" or where the two
# differ. It is for the host device: a time that stands still is none for a GPU's
# driver, on which TestPrograms of gorgoniavm runs what the programs do.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
all=(286 convnet iris logisticregression resnet stacked_autoencoder tiny-yolo-v2-coco tiny-yolo-v3-coco)
[ $# -gt 0 ] || set -- "${all[@]}"
source=$(go list -m -f '{{.Dir}}' gorgonia.org/gorgonia)/examples
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# flags lists the arguments of a program.
flags() {
	case $1 in
	convnet) echo -epochs 2 -batchsize 5 ;;
	resnet) echo -epochs 1 -batchsize 20 -dtype float32 ;;
	stacked_autoencoder) echo -bs 5 -pt 2 -ft 2 -dataset test ;;
	esac
}

# shorten has a program end soon, and print what does not depend on addresses.
shorten() {
	sed -i -E 's/trainIter = 500/trainIter = 20/; s/N = 26733/N = 2000/; s/iter := 10000/iter := 200/
		s/Accuracy: %2.2f \\r/Accuracy: %2.2f \\n/; s/^\tvm.Reset\(\)/\tlog.Print("cost ", costVal)\n&/; /fmt.Printf\("%v", prog\)/d' "$1"/*.go
	[ "$(basename "$1")" != logisticregression ] || sed -i '/START/,/^}/{/START/!{/^}/!d}}' "$1/main.go" # Gorgonia's own machine fails there
}

# change changes the line that makes the machine.
change() {
	local file
	for file in "$1"/*.go; do
		grep -q 'NewTapeMachine(' "$file" || continue
		sed -i -E '/^\s*\/\//!{
			s/, (\w+\.)?WithPrecompiled\(prog, locMap\)/@/
			s/(\w+\.)?NewTapeMachine\((\w+(\.\w+)?)(@)?(, (\w+\.)?BindDualValues.*)?\)$/pooled.Must(gorgoniavm.New(\2, pooled.Engine\5))\4/
			s/(pooled.Must.*), (\w+\.)?BindDualValues/\1, gorgoniavm.BindDualValues/
			s/@$/; _, _ = prog, locMap/
			s/New\(sda\.g,/New(sda.g.ExactSubgraphRoots(outputs...),/
		}
		s/^package main/&\n\nimport "github.com\/cupool\/cupool\/gorgoniavm"\nimport "programs\/pooled"/' "$file"
	done
}

# images writes the first n of MNIST's.
images() {
	local kind n=20 to=$work/testdata/mnist
	mkdir -p "$to"
	for kind in train t10k; do
		{ zcat "testdata/mnist/$kind-images-idx3-ubyte.gz" | head -c 4; printf '\0\0\0\x14'; zcat "testdata/mnist/$kind-images-idx3-ubyte.gz" | tail -c +9 | head -c $((8 + n * 784)); } >"$to/$kind-images-idx3-ubyte"
		{ zcat "testdata/mnist/$kind-labels-idx1-ubyte.gz" | head -c 4; printf '\0\0\0\x14'; zcat "testdata/mnist/$kind-labels-idx1-ubyte.gz" | tail -c +9 | head -c $n; } >"$to/$kind-labels-idx1-ubyte"
	done
}

# played prints what a program of faketime writes, without the headers.
played() { perl -0777 -pe 's/\0\0PB.{12}//gs'; }

set +o pipefail
images
set -o pipefail
mkdir -p "$work/pooled"
cat >"$work/pooled/pooled.go" <<'GO'
// Package pooled has the engine for the programs.
package pooled

import (
	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

var Engine = engine()

func engine() *cupool.Engine {
	pool, err := cupool.New(cupool.Config{})
	check(err)
	e, err := cupool.NewEngine(pool)
	check(err)
	return e
}

func Must(vm *gorgoniavm.VM, err error) *gorgoniavm.VM {
	check(err)
	return vm
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
GO
sed 's|^module .*|module programs|' go.mod >"$work/go.mod"
cp go.sum "$work/"
for program; do
	for machine in tape vm; do
		mkdir -p "$work/$machine"
		cp -r "$source/$program" "$work/$machine/"
		chmod -R u+w "$work/$machine/$program"
		rm -f "$work/$machine/$program"/*_test.go
		shorten "$work/$machine/$program"
	done
	mkdir -p "$work"/{tape,vm}/testdata && ln -sf "$work/testdata/mnist" "$work/tape/testdata/" && ln -sf "$work/testdata/mnist" "$work/vm/testdata/"
	mkdir -p "$work"/{tape,vm}/"$program"/images
	change "$work/vm/$program"
done
cd "$work"
go mod edit -require github.com/cupool/cupool@v0.0.0 -replace "github.com/cupool/cupool=$root"
go mod tidy >tidy.txt 2>&1 || { cat tidy.txt >&2; exit 1; }
export GODEBUG=randautoseed=0
for program; do
	for machine in tape vm; do
		go build -tags faketime,native -o "$work/$machine.bin" "./$machine/$program"
		# shellcheck disable=SC2046
		(cd "$machine/$program" && "$work/$machine.bin" $(flags "$program") 2>&1 | played >"$work/$machine.out" || true; cat training.viz >>"$work/$machine.out" 2>/dev/null || true)
	done
	echo "== $program"
	grep -E 'cost|Cost|accuracy: |Score|&\{|00000' vm.out | tail -2 | cut -c1-150 || true
	diff tape.out vm.out >differ.out && echo "the same" || { echo "different:"; head -8 differ.out | cut -c1-150; }
done
