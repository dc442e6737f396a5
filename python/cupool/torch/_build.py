"""Compiles the class for PyTorch, with a C++ compiler and PyTorch's headers alone. PyTorch is not imported.

usage: python _build.py OUTPUT     for the PyTorch of this Python
       python _build.py --standard prints the C++ that PyTorch's headers want
TORCH_INCLUDE=DIR:DIR              takes headers at hand instead; CUDA's belong to them
"""

import hashlib
import importlib.util
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
SOURCES = PACKAGE / "src"
FIRST_GLIBC = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}  # the oldest version of its symbols


class BuildError(Exception):
    """The class cannot be compiled here; the text says why."""


def header():
    """The directory of cupool.h: of the wheel, or of the tree."""
    for place in (PACKAGE / "include", PACKAGE.parent.parent / "capi"):
        if (place / "cupool.h").is_file():
            return place
    raise BuildError("cupool.h is not there: the installation of cupool is damaged")


def torch_directory():
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        raise BuildError("PyTorch is not installed for " + sys.executable)
    return pathlib.Path(list(found.submodule_search_locations)[0])


def cuda_includes(torch):
    """Where CUDA's headers are: in the packages that PyTorch needs, or in a toolkit."""
    places = sorted((torch.parent / "nvidia").glob("*/include"))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            places.append(pathlib.Path(os.environ[variable]) / "include")
    places.append(pathlib.Path("/usr/local/cuda/include"))
    chosen = [p for p in places if (p / "cuda_runtime_api.h").is_file() or (p / "crt" / "host_defines.h").is_file()]
    if not any((p / "cuda_runtime_api.h").is_file() for p in chosen):
        raise BuildError(
            "CUDA's headers are missing: pip install the nvidia-cuda-runtime package of PyTorch's CUDA, "
            "or set CUDA_HOME to a toolkit"
        )
    return chosen


def includes():
    """The directories of headers, PyTorch's first."""
    if os.environ.get("TORCH_INCLUDE"):
        return [pathlib.Path(p) for p in os.environ["TORCH_INCLUDE"].split(":")]
    torch = torch_directory()
    return [torch / "include", *cuda_includes(torch)]


def abi():
    """1 where PyTorch has the present ABI of libstdc++, as all since 2.7 have."""
    if os.environ.get("TORCH_INCLUDE"):
        return 1
    library = torch_directory() / "lib" / "libc10.so"
    return 1 if not library.is_file() or b"__cxx1112basic_string" in library.read_bytes() else 0


def standard(directories):
    """The C++ that PyTorch's headers want. They say so themselves; those of an old PyTorch are good for old compilers."""
    texts = (d / "ATen" / "ATen.h" for d in directories)
    return "c++20" if any(t.is_file() and "C++20" in t.read_text() for t in texts) else "c++17"


def fingerprint():
    """A name for the sources, so that a cache never serves the class of another version."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.glob("*")) + [header() / "cupool.h"]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def compiler():
    """The compiler's command, as "g++" or "ccache g++"."""
    return shlex.split(os.environ.get("CXX") or "g++")


def machine():
    """The processor that the compiler builds for, as platform.machine() calls it."""
    return _run(*compiler(), "-dumpmachine").split("-")[0]


def build(output, flags=()):
    """Writes the class to output, a path, as one file that appears when it is whole. Raises BuildError."""
    output = pathlib.Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        # The libraries are named and not linked: at run time those that PyTorch has loaded are taken. Of libstdc++ the
        # compiler would take its archive where the shared one has no name for it, and a second copy of its locales
        # crashes where numbers are printed.
        for name, soname in ("c10", "libc10.so"), ("c10_cuda", "libc10_cuda.so"), ("stdc++", "libstdc++.so.6"):
            _run(*compiler(), "-shared", "-nostdlib", "-x", "c++", "/dev/null", f"-Wl,-soname,{soname}",
                 "-o", work / f"lib{name}.so")
        # What newer versions of glibc have elsewhere is taken from where all have it: the functions from libdl.so.2. The
        # variable is of 2.32; with one of its own, the class counts references as in a program with threads.
        (work / "dl.map").write_text(FIRST_GLIBC.get(machine(), "") + " { global: *; };\n")
        (work / "dl.cpp").write_text('extern "C" { void dlopen() {} void dlsym() {} void dlclose() {} void dlerror() {} }\n')
        _run(*compiler(), "-w", "-fno-builtin", "-shared", "-nostdlib", "-Wl,-soname,libdl.so.2",
             f"-Wl,--version-script={work / 'dl.map'}", work / "dl.cpp", "-o", work / "libdl.so.2")
        (work / "threads.cpp").write_text('extern "C" { char __libc_single_threaded; }\n')
        # Some of CUDA's packages have no cuda_runtime.h, of which nothing but the interface is needed.
        (work / "last").mkdir()
        (work / "last" / "cuda_runtime.h").write_text("#include <cuda_runtime_api.h>\n")
        # One unit: the headers take most of the time.
        unit = work / "cupool_torch.cpp"
        unit.write_text("".join(f'#include "{path}"\n' for path in sorted(SOURCES.glob("*.cpp"))))
        directories = includes()
        command = [*compiler(), f"-std={standard(directories)}", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra",
                   f"-D_GLIBCXX_USE_CXX11_ABI={abi()}", f"-I{header()}", f"-I{SOURCES}"]
        for directory in directories:
            command += ["-isystem", directory]
        command += ["-idirafter", work / "last", *flags, unit, work / "threads.cpp", "-o", work / "out.so",
                    "-Wl,--no-as-needed", f"-L{work}", "-lc10_cuda", "-lc10", work / "libdl.so.2",
                    "-Wl,-soname,cupool_torch.so", "-Wl,-z,nodelete"]
        _run(*command)
        partial = output.with_name(f".{output.name}.{os.getpid()}")
        partial.write_bytes((work / "out.so").read_bytes())
        partial.chmod(0o755)
        os.replace(partial, output)
    return output


def _run(*command):
    command = [str(part) for part in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as err:
        raise BuildError(f"there is no C++ compiler {command[0]!r}: install g++ or set CXX ({err})") from err
    if done.returncode != 0:
        raise BuildError(f"{command[0]} failed:\n{done.stderr[-4000:]}")
    if done.stderr:
        sys.stderr.write(done.stderr)
    return done.stdout


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["--standard"]:
            print(standard(includes()))
            sys.exit()
        print(build(*sys.argv[1:2] or ["cupool_torch.so"], flags=sys.argv[2:]))
    except BuildError as failure:
        sys.exit(f"cupool: {failure}")
