#!/usr/bin/env bash
# Makes a release of what is committed, and checks it as its users get it.
#
# usage: release.sh VERSION [DIR]        release.sh v0.1.0
#
# In DIR (build/release) are then
#
#   repository        a clone with the commit of the release and the tags of all modules, to be pushed
#   proxy             the modules, as a proxy of Go modules serves them
#   *.tar.gz, *.whl   the programs, the C library and the wheel, for linux on amd64 and arm64
#   *.cdx.json        what each module of Go consists of (CycloneDX)
#   SHA256SUMS
#
# Needs Go, git, gcc, aarch64-linux-gnu-gcc, python3 with venv, and qemu-aarch64 to run what is for arm64. Nothing is pushed and nothing
# of the tree is changed. Checks: go get of each module from the proxy, and a program over it; go install of cmd/cupool; a C program over the
# archive; pip install of the wheel; the API beside the last release's, if there is one. With CUPOOL_LIBCUDA they run over that driver.
set -euo pipefail
cd "$(dirname "$0")"
version=${1:?usage: release.sh VERSION [DIR]}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "release.sh: $version is no version like v0.1.0" >&2; exit 2; }
number=${version#v}
grep -q "^version = \"$number\"$" python/pyproject.toml || { echo "release.sh: python/pyproject.toml has another version than $number" >&2; exit 1; }
grep -q "^## $number" CHANGELOG.md || { echo "release.sh: CHANGELOG.md has no section $number" >&2; exit 1; }
[ -z "$(git status --porcelain -uno)" ] || { echo "release.sh: something is changed and not committed" >&2; exit 1; }
mkdir -p "${2:-build/release}"
out=$(cd "${2:-build/release}" && pwd)
[ -z "$(ls -A "$out")" ] || { echo "release.sh: $out is not empty" >&2; exit 1; }
released=(capi cmd examples metrics) # bench serves the repository alone
path=github.com/cupool/cupool
unset GOFLAGS
say() { printf '\n== %s\n' "$*"; }

say "the commit and the module of its root"
git clone -q . "$out/repository"
cd "$out/repository"
for m in "${released[@]}" bench; do (cd "$m" && go mod edit -require "$path@$version"); done
sed -i "s|^replace $path v[^ ]* =>|replace $path $version =>|; s|^// Until the first release.*|// The other modules require this version of cupool.|" go.work
go build work
git commit -qam "Release $version"
git tag "$version"
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
# serve MODULE...: puts modules into the proxy. Go reads the clone in place of the repository that the path names.
serve() {
	(
		export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$out/repository.insteadOf" GIT_CONFIG_VALUE_0="https://$path"
		cd "$work"
		GOPRIVATE=$path,$path/* GOMODCACHE=$work/cache GOFLAGS=-modcacherw GOWORK=off go mod download "${@/%/@$version}"
	)
	mkdir -p "$out/proxy/$(dirname "$path")"
	cp -r "$work/cache/cache/download/$path" "$out/proxy/$(dirname "$path")/"
	find "$out/proxy" -name '*.lock' -delete
}
serve "$path"
export GOPROXY=file://$out/proxy,$(go env GOPROXY) GONOSUMDB=$path,$path/* GOFLAGS=-modcacherw GOMODCACHE=$work/modules

say "the other modules, with the sums of the first"
for m in "${released[@]}" bench; do (cd "$m" && GOWORK=off go mod tidy); done
git commit -qam "Release $version: the sums of the modules"
for m in "${released[@]}"; do git tag "$m/$version"; done
serve "${released[@]/#/$path/}"

say "programs, the C library, the wheel"
bom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0
for arch in amd64 arm64; do
	cc=gcc machine=x86_64
	[ $arch = amd64 ] || cc=aarch64-linux-gnu-gcc machine=aarch64
	name=cupool-$number-linux-$arch
	mkdir -p "$work/$name"
	CGO_ENABLED=0 GOARCH=$arch go build -trimpath -ldflags -s -o "$work/$name/" ./cmd/cupool ./examples/mlp
	cp LICENSE README.md "$work/$name/"
	tar -C "$work" -czf "$out/$name.tar.gz" "$name"
	name=libcupool-$number-linux-$arch
	CC=$cc capi/build.sh "$work/$name" >/dev/null
	cp LICENSE docs/c.md "$work/$name/"
	tar -C "$work" -czf "$out/$name.tar.gz" "$name"
	LIBCUPOOL=$work/$name/libcupool.so MANYLINUX=2_28 python3 python/wheel.py "$out" | grep "$machine"
done
for m in . "${released[@]}"; do
	name=cupool${m#.}
	(cd "$m" && GOWORK=off go run $bom mod -licenses -json -output "$out/$name-$number.cdx.json")
done

say "each as its users get it"
mkdir "$work/user" && cd "$work/user"
go mod init example.com/user
cat >main.go <<-'END'
	package main

	import (
		"fmt"

		"github.com/cupool/cupool"
		_ "github.com/cupool/cupool/metrics/prom"
	)

	func main() {
		pool, err := cupool.New(cupool.Config{})
		if err != nil {
			panic(err)
		}
		b, err := pool.Alloc(1<<20, nil)
		fmt.Println("a block of", b.Size(), "bytes", err, pool.Free(b), pool.Close())
	}
END
go get "$path@$version" "$path/metrics@$version"
go run .
GOBIN=$work/bin go install "$path/cmd/cupool@$version"
"$work/bin/cupool" info | head -n 3
tar -xzf "$out/libcupool-$number-linux-amd64.tar.gz"
gcc "-Ilibcupool-$number-linux-amd64" "$out/repository/examples/c/main.c" "-Llibcupool-$number-linux-amd64" -lcupool \
	"-Wl,-rpath,\$ORIGIN/libcupool-$number-linux-amd64" -o example
if [ -n "${CUPOOL_LIBCUDA:-}" ]; then ./example; else ldd example | grep libcupool; fi
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-index --disable-pip-version-check "$out"/cupool-*x86_64.whl
"$work/venv/bin/python" -c 'import cupool; print("the wheel has version", cupool.version())'
tar -xzf "$out/cupool-$number-linux-arm64.tar.gz"
qemu-aarch64 "cupool-$number-linux-arm64/cupool" info | head -n 3

say "the API beside the last release"
cd "$out/repository"
.ci/api "$version"

cd "$out"
sha256sum ./*.tar.gz ./*.whl ./*.json >SHA256SUMS
say "$version is in $out: push the tags of its repository, and upload the files"
cat SHA256SUMS
