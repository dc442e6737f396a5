"""Builds the wheel of cupool, with Python alone. It is also the build backend of pyproject.toml.

usage: python3 python/wheel.py [DIR]        writes DIR/cupool-VERSION-py3-none-PLATFORM.whl (build)

The library comes from capi/build.sh, or from LIBCUPOOL. The class for PyTorch is compiled for each of
TORCH_INCLUDES, as "2.11=DIR:DIR 2.10=DIR:DIR"; versions that are not there are built where the wheel is used. The
platform is the oldest glibc that all libraries of the wheel run on: MANYLINUX=2_28 fails if that is newer.
"""

import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
FIRST = (1980, 1, 1, 0, 0, 0)  # the time of all files, so that a wheel depends on its contents alone


def field(name):
    """A field of [project], which is simple enough to be read without a parser (Python 3.9 has none)."""
    return re.search(rf'^{name} = "(.*)"$', (HERE / "pyproject.toml").read_text(), re.MULTILINE)[1]


def glibc(data):
    """The newest version of glibc's symbols that an ELF file needs, as (2, 28), or None."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            done = subprocess.run(["readelf", "-W", "--dyn-syms", file.name], capture_output=True, text=True)
        except FileNotFoundError:
            return None
    if done.returncode != 0:
        return None
    found = [tuple(map(int, m)) for m in re.findall(r"GLIBC_(\d+)\.(\d+)", done.stdout)]
    return max(found, default=(2, 17))


def platform_tag(libraries):
    """manylinux of the newest glibc that a library needs; linux where that cannot be found out."""
    processor = machine(next(iter(libraries.values())))
    needs = {name: glibc(data) for name, data in libraries.items()}
    if not needs or None in needs.values():
        print("cupool: readelf is missing, so the wheel is for this system alone", file=sys.stderr)
        return f"linux_{processor}"
    newest = max(max(needs.values()), (2, 17))
    limit = os.environ.get("MANYLINUX")
    if limit and newest > tuple(map(int, limit.split("_"))):
        sys.exit(f"cupool: not for manylinux_{limit}: " + ", ".join(
            f"{name} needs glibc {v[0]}.{v[1]}" for name, v in needs.items() if v == newest))
    return f"manylinux_{newest[0]}_{newest[1]}_{processor}"


def library():
    if os.environ.get("LIBCUPOOL"):
        return pathlib.Path(os.environ["LIBCUPOOL"])
    subprocess.run([ROOT / "capi" / "build.sh", ROOT / "build"], check=True)
    return ROOT / "build" / "libcupool.so"


def machine(library):
    """The processor that an ELF file is for, as platform.machine() calls it."""
    return {0x3E: "x86_64", 0xB7: "aarch64"}.get(int.from_bytes(library[18:20], "little"), platform.machine())


def licenses(library):
    """cupool's licence, and those of Go and of the modules in the library, where Go is there to say which."""
    yield "LICENSE", (ROOT / "LICENSE").read_bytes()
    try:
        modules = subprocess.run(["go", "version", "-m", library], capture_output=True, text=True, check=True).stdout
        paths = subprocess.run(["go", "env", "GOROOT", "GOMODCACHE"], capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        print("cupool: the go command cannot name the modules of the library: their licences are missing",
              file=sys.stderr)
        return
    goroot, cache = paths.stdout.split()
    yield "licenses/go/LICENSE", (pathlib.Path(goroot) / "LICENSE").read_bytes()
    for name, release in re.findall(r"^\tdep\t(\S+)\t(v\S+)", modules, re.MULTILINE):
        escaped = re.sub("[A-Z]", lambda m: "!" + m[0].lower(), f"{name}@{release}")
        for file in sorted((pathlib.Path(cache) / escaped).glob("*")):
            if re.match(r"(LICEN[CS]E|COPYING|NOTICE|PATENTS)", file.name) and file.is_file():
                yield f"licenses/{name}/{file.name}", file.read_bytes()


def classes(processor):
    """The class for PyTorch, of each version whose headers are at hand, for a processor."""
    sys.path.insert(0, str(HERE / "cupool" / "torch"))
    import _build

    releases = [item.split("=", 1) for item in os.environ.get("TORCH_INCLUDES", "").split()]
    if releases and _build.machine() != processor:
        sys.exit(f"cupool: {' '.join(_build.compiler())} builds the class for {_build.machine()}, and the library is for {processor}: "
                 "set CXX")
    for release, directories in releases:
        os.environ["TORCH_INCLUDE"] = directories
        with tempfile.TemporaryDirectory() as work:
            file = _build.build(pathlib.Path(work) / "out.so", ("-s",))
            yield f"cupool/torch/binaries/cupool_torch-{release}-abi1-{processor}.so", file.read_bytes()
    names = ", ".join(release for release, _ in releases) or "none (TORCH_INCLUDES names no headers)"
    print(f"cupool: the class for PyTorch in the wheel for {processor}: {names}; for others it is built where it is used",
          file=sys.stderr)


def files(at):
    """All that the wheel has, but for its own description."""
    for path in sorted((HERE / "cupool").rglob("*")):
        if path.suffix in (".py", ".cpp", ".h") and "__pycache__" not in path.parts and "include" not in path.parts:
            yield str(path.relative_to(HERE)), path.read_bytes()
    yield "cupool/include/cupool.h", (ROOT / "capi" / "cupool.h").read_bytes()
    yield "cupool/lib/libcupool.so", at.read_bytes()
    yield from classes(machine(at.read_bytes()))


def metadata():
    return (f"Metadata-Version: 2.1\nName: {field('name')}\nVersion: {field('version')}\n"
            f"Summary: {field('description')}\nRequires-Python: {field('requires-python')}\n"
            "License-File: LICENSE\nDescription-Content-Type: text/markdown\n\n"
            + (ROOT / "docs" / "python.md").read_text()).encode()


def build_wheel(directory, config_settings=None, metadata_directory=None):
    """PEP 517: writes the wheel into a directory and returns its name."""
    at = library()
    content = dict(files(at))
    tag = "py3-none-" + platform_tag({n: d for n, d in content.items() if n.endswith(".so")})
    info = f"{field('name')}-{field('version')}.dist-info"
    content[f"{info}/METADATA"] = metadata()
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: cupool\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    for name, data in licenses(at):
        content[f"{info}/{name}"] = data
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in content.items())
    content[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    name = f"{field('name')}-{field('version')}-{tag}.whl"
    pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path, FIRST)
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__.strip())
    target = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build"
    print(pathlib.Path(target) / build_wheel(target))
