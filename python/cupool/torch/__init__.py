"""PyTorch on cupool.

    import cupool.torch
    cupool.torch.install()          before CUDA is used

or "python -m cupool.torch train.py ARGS". install only puts a C++ class into PyTorch's place for its allocator. The
library itself is opened when PyTorch initializes CUDA, in the process that does, so that forking goes on working.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import sys
import threading
import types
import warnings

import torch

from .. import _library
from . import _build

__all__ = ["InstallError", "binary", "install", "installed", "settings", "sleep", "tag", "wake"]


class InstallError(RuntimeError):
    """cupool cannot be PyTorch's allocator in this process; the text says why and what to do."""


# ------------------------------------------------------------------ the way in

_class = None  # ctypes' library of the class, while it is the allocator
_plain = None  # PyTorch's pluggable allocator, while that is


def install(settings=None, *, fallback=True):
    """Makes cupool PyTorch's allocator of CUDA memory.

    settings are cupool's, as "limit:8GiB,decay:30s" or a dictionary. They win over CUPOOL_ALLOC_CONF, and that over
    PYTORCH_ALLOC_CONF. A second call does nothing. fallback=False raises where the class cannot be built for
    this PyTorch, and otherwise PyTorch's plain interface is taken, with a warning of what goes without; settings are
    those of CUPOOL_ALLOC_CONF alone then.

    Raises InstallError where CUDA was used already, naming the module that did, or where backend:cudaMallocAsync was
    asked for. It takes milliseconds, or half a minute the first time where no binary of the class fits.
    """
    global _class
    if installed():
        return
    _refuse()
    if isinstance(settings, dict):
        settings = ",".join(f"{key}:{value}" for key, value in settings.items())
    try:
        file = binary()
    except _build.BuildError as err:
        if not fallback:
            raise InstallError(f"the class for PyTorch {torch.__version__} cannot be built: {err}") from err
        return _install_plain(err, settings)
    lib = ctypes.CDLL(str(file))
    built_for = lib.cupool_torch_built_for()
    if built_for != _minor():
        raise InstallError(f"{file} is built for PyTorch {built_for // 100}.{built_for % 100}, and this is "
                           f"{torch.__version__}")
    text = ctypes.create_string_buffer(2048)
    lib.cupool_torch_install.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    code = lib.cupool_torch_install(_library.path().encode(), (settings or "").encode(), text, len(text))
    if code != 0:
        raise InstallError(f"{text.value.decode(errors='replace')}. {_who()}" if code == 1
                           else text.value.decode(errors="replace"))
    _class = lib
    _library.opens = _open


_opened = set()


def _open(device):
    """Has the pool of a device opened by PyTorch's class, which knows what install was given."""
    if device in _opened:
        return
    torch.cuda.init()
    text = ctypes.create_string_buffer(2048)
    if _class.cupool_torch_open(device, text, ctypes.c_size_t(len(text))) != 0:
        raise RuntimeError(text.value.decode(errors="replace"))
    _opened.add(device)


def installed():
    """Whether PyTorch's CUDA memory comes from cupool."""
    return _plain is not None or (_class is not None and bool(_class.cupool_torch_installed()))


def _minor():
    major, minor = torch.__version__.split(".")[:2]
    return 100 * int(major) + int(minor)


def _refuse():
    if torch.version.cuda is None:
        raise InstallError(f"PyTorch {torch.__version__} is built without CUDA")
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if "backend:cudaMallocAsync" in os.environ.get(name, "").replace(" ", ""):
            raise InstallError(f"{name} asks for backend:cudaMallocAsync, which is another allocator: take it out, or "
                               "do not install cupool")
    if torch.cuda.is_initialized():
        raise InstallError("CUDA was used in this process already: install cupool before. " + _who())


def _install_plain(reason, settings):
    """The interface of PyTorch that every version has. Missing there is all that it has no function for."""
    global _plain
    file = _library.path()
    lib = _library.library()
    plain = torch.cuda.memory.CUDAPluggableAllocator(file, "cupool_torch_alloc", "cupool_torch_free")
    torch.cuda.memory.change_current_allocator(plain)
    record = ctypes.cast(lib.cupool_torch_record_stream, ctypes.c_void_p).value
    plain.allocator().set_record_stream_fn(record)
    _plain = plain
    warnings.warn(
        f"cupool: the class for PyTorch {torch.__version__} could not be built, so PyTorch's plain interface is used. "
        "Statistics, snapshots, histories, CUDA graphs, torch.compile's reduce-overhead, MemPool and sharing with "
        "other processes go without, and an out of memory is no exception. "
        "cupool.stats() and cupool.write() work. "
        + (f"What install was given has no effect: set CUPOOL_ALLOC_CONF={settings}. " if settings else "")
        + f"The reason: {reason}",
        stacklevel=3,
    )


def binary():
    """The file of the class for this PyTorch: one of the wheel, or one that is built on the spot and kept in the cache
    (CUPOOL_CACHE, or cupool in XDG_CACHE_HOME or ~/.cache). Raises BuildError."""
    if os.environ.get("CUPOOL_TORCH_BINARY"):
        return pathlib.Path(os.environ["CUPOOL_TORCH_BINARY"])
    release = ".".join(torch.__version__.split(".")[:2])
    is_release = re.fullmatch(r"\d+\.\d+\.\d+(\+.*)?", torch.__version__)  # what comes before may have another class
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    machine = os.uname().machine
    shipped = pathlib.Path(__file__).parent / "binaries" / f"cupool_torch-{release}-abi{abi}-{machine}.so"
    if is_release and shipped.is_file() and _loads(shipped):
        return shipped
    if _minor() < 209:
        raise _build.BuildError("it needs PyTorch 2.9 or later")
    name = f"torch-{torch.__version__}-abi{abi}-{machine}-{_build.fingerprint()}"
    file = _cache() / name / "cupool_torch.so"
    if not file.is_file():
        try:
            with _one_at_a_time(file.parent):
                if not file.is_file():
                    _build.build(file)
        except OSError as err:
            raise _build.BuildError(f"it cannot be kept in {file.parent}: set CUPOOL_CACHE, or TMPDIR ({err})") from err
    return file


def _loads(file):
    """Whether the libraries of this system are new enough for a class that was built elsewhere."""
    try:
        ctypes.CDLL(str(file))
    except OSError:
        return False
    return True


def _cache():
    if os.environ.get("CUPOOL_CACHE"):
        return pathlib.Path(os.environ["CUPOOL_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "cupool"


@contextlib.contextmanager
def _one_at_a_time(directory):
    """Ranks of a training start together: one builds, the others wait for it."""
    import fcntl

    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ------------------------------------------------------------------ who used CUDA

_first_user = None


def _module_outside_torch(frame):
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] not in ("torch", "cupool", "contextlib", "importlib", "runpy", "threading"):
            return f"{name} ({frame.f_code.co_filename}, line {frame.f_lineno})"
        frame = frame.f_back
    return None


def _note_user():
    global _first_user
    if _first_user is None:
        _first_user = _module_outside_torch(sys._getframe(1))


def _who():
    """Names who used CUDA first: as seen when it happened, or else by the tensors that modules keep."""
    if _first_user is not None:
        return f"The first to use it was {_first_user}."
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("torch", "cupool") or not isinstance(module, types.ModuleType):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.is_cuda:
                return f"The module {name} keeps a CUDA tensor, {key}."
            if isinstance(value, (torch.cuda.Stream, torch.cuda.Event)):
                return f"The module {name} keeps a CUDA stream or event, {key}."
    return ("It happened before cupool.torch was imported, so its name is not known: import cupool.torch first, or run "
            "python -m cupool.torch.")


def _watch():
    if torch.version.cuda is not None and not torch.cuda.is_initialized():
        with contextlib.suppress(Exception):
            torch.cuda._lazy_call(_note_user)


_watch()


# ------------------------------------------------------------------ settings, tags, sleep

def settings(device=None):
    """The settings in effect, one "KEY:VALUE" a line with where each is from. Initializes CUDA."""
    from .. import settings as of

    _ready()
    return of(_index(device))


def _ready():
    if not installed():
        raise InstallError("cupool is not PyTorch's allocator: call cupool.torch.install() before CUDA is used")
    torch.cuda.init()


def _index(device):
    return torch.cuda._utils._get_device_index(device, optional=True)


_tags = threading.local()
_known = set()  # (device, name) of each tag that there was


@contextlib.contextmanager
def tag(name, device=None):
    """with cupool.torch.tag("weights"): what the thread allocates on the device comes from a pool of that name, which
    sleep and wake go by. Work of the backward pass that other threads do is not meant. Tags nest."""
    _ready()
    device = _index(device)
    active = getattr(_tags, "active", None)
    if active is None:
        active = _tags.active = []
    if (device, name) in active:
        if active[-1] != (device, name):
            raise ValueError(f"the tag {name!r} is active already, below {active[-1][1]!r}")
        yield
        return
    pool = _pool(device, name)
    _known.add((device, name))
    _library.call("begin", device, pool, None, None)
    active.append((device, name))
    try:
        yield
    finally:
        active.pop()
        _library.call("end", device, pool)
        _library.call("pool_release", device, pool)  # begin has counted


def _pool(device, name):
    pool = _library.PoolId()
    _library.call("pool_named", device, _library.text(name.encode()), None, ctypes.byref(pool))
    return pool


def _tagged(device, tag):
    if tag is None:
        return _library.ALL
    if (device, tag) not in _known:
        there = ", ".join(repr(name) for of, name in sorted(_known.copy()) if of == device) or "none"
        raise ValueError(f"there was no tag {tag!r} on device {device}; there were: {there}")
    return _pool(device, tag)


def sleep(tag=None, *, keep=True, device=None):
    """Gives the memory of a tag, or with None all that can sleep, back to the device, until wake. Addresses stay, so
    CUDA graphs stay good. keep=True holds the contents in the computer's memory; otherwise they are lost. The streams'
    work is waited for. Nothing may use the tensors meanwhile, and nothing of the tag can be allocated. Raises ValueError
    for a tag that there was not on the device."""
    _ready()
    device = _index(device)
    _library.call("sleep", device, _tagged(device, tag), int(bool(keep)))


def wake(tag=None, *, device=None):
    """Gets memory for what sleeps, at the same addresses, with the contents that were kept."""
    _ready()
    device = _index(device)
    _library.call("wake", device, _tagged(device, tag))
