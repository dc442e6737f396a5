"""libcupool.so by ctypes: the functions and structs of cupool.h that the package uses."""

import ctypes
import os
import pathlib
import threading

OK, OUT_OF_MEMORY, NOT_FOUND, EXISTS, ASLEEP, NO_DEVICE, FORKED = 0, 1, 8, 9, 12, 16, 20


class CupoolError(RuntimeError):
    """A function of the library failed. code is its cupool_status."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class OutOfMemoryError(CupoolError, MemoryError):
    """Neither the pool nor the device has the memory."""


class PoolId(ctypes.Structure):
    _fields_ = [("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


MAIN, ALL = PoolId(0, 0), PoolId(2**64 - 1, 2**64 - 1)


class Stat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("current", "peak", "allocated", "freed")]


class Stats3(ctypes.Structure):
    _fields_ = [(name, Stat) for name in ("all", "small", "large")]


class Stats(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, Stats3) for name in (
            "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes",
            "active_bytes", "inactive_split_bytes", "requested_bytes")]
        + [(name, Stat) for name in ("oversize_allocations", "oversize_segments")]
        + [(name, ctypes.c_int64) for name in (
            "num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free",
            "max_split_size", "pending_bytes", "cached_bytes", "asleep_bytes", "largest_free", "limit", "hits",
            "metadata_bytes", "streams")]
    )


class Config(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("settings", ctypes.c_char_p), ("limit", ctypes.c_size_t),
        ("fraction", ctypes.c_double), ("not_shareable", ctypes.c_int), ("no_environment", ctypes.c_int),
    ]


_pointer, _int, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_FUNCTIONS = {
    "alloc": (_int, _size, _pointer, ctypes.POINTER(_pointer)),
    "free": (_pointer,),
    "record_stream": (_pointer, _pointer),
    "forget_stream": (_int, _pointer),
    "open": (_int, ctypes.POINTER(Config)),
    "settings": (_int, ctypes.c_char_p, _size, ctypes.POINTER(_size)),
    "memory_info": (_int, ctypes.POINTER(_size), ctypes.POINTER(_size), ctypes.POINTER(_size)),
    "set_limit": (_int, _size),
    "wait": (_int,),
    "trim": (_int, PoolId, _size, ctypes.POINTER(_size)),
    "pool_named": (_int, ctypes.c_char_p, _pointer, ctypes.POINTER(PoolId)),
    "pool_release": (_int, PoolId),
    "begin": (_int, PoolId, _pointer, _pointer),
    "end": (_int, PoolId),
    "sleep": (_int, PoolId, _int),
    "wake": (_int, PoolId),
    "get_stats": (_int, PoolId, ctypes.POINTER(Stats)),
    "reset_peaks": (_int,),
    "label_push": (ctypes.c_char_p,),
    "label_pop": (),
    "history_start": (_int, _size, _size),
    "history_stop": (_int,),
    "write": (_int, _int, ctypes.c_char_p),
    "serve": (ctypes.c_char_p, ctypes.c_char_p, _size),
    "serve_stop": (),
}


def path():
    """The file of the library: CUPOOL_LIBRARY, or the one of the package."""
    if os.environ.get("CUPOOL_LIBRARY"):
        return os.environ["CUPOOL_LIBRARY"]
    here = pathlib.Path(__file__).resolve().parent
    for place in (here / "lib" / "libcupool.so", here.parent.parent / "build" / "libcupool.so"):
        if place.is_file():
            return str(place)
    raise CupoolError(0, f"libcupool.so is neither in {here}/lib nor named by CUPOOL_LIBRARY: the installation of "
                         "cupool is damaged, or capi/build.sh has not been run")


# Called with a device before it is used, where somebody has settings for its pool; or None.
opens = None

_lock = threading.Lock()
_loaded = None


def library():
    """The library, opened when it is first asked for. A process that forks later must not have asked."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _open()
    return _loaded


def _open():
    try:  # one copy for a process, whoever opened it
        lib = ctypes.CDLL("libcupool.so", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        lib = ctypes.CDLL(path(), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    for name, arguments in _FUNCTIONS.items():
        function = getattr(lib, "cupool_" + name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    lib.cupool_last_error.restype = ctypes.c_char_p
    lib.cupool_last_error.argtypes = ()
    lib.cupool_version.argtypes, lib.cupool_version.restype = (), ctypes.c_int
    return lib


def call(name, *arguments):
    """Calls cupool_NAME and raises CupoolError where it fails."""
    lib = library()
    if opens is not None and _FUNCTIONS[name][:1] == (_int,) and arguments[0] >= 0:
        opens(arguments[0])
    code = getattr(lib, "cupool_" + name)(*arguments)
    if code != OK:
        text = (lib.cupool_last_error() or b"").decode(errors="replace")
        raise (OutOfMemoryError if code == OUT_OF_MEMORY else CupoolError)(code, text)


def text(data):
    """Bytes for C, which would cut them at a 0."""
    if b"\0" in data:
        raise ValueError("embedded null byte")
    return data


def size(n):
    """A number for C, which would get another one where it is negative or has more than 64 bits."""
    if not 0 <= n < 2**64:
        raise ValueError(f"{n} is not between 0 and 2**64 - 1")
    return n


def alloc(device, size, stream):
    p = ctypes.c_void_p()
    call("alloc", device, size, stream, ctypes.byref(p))
    return p.value or 0


def free(p):
    """Frees a block. In a child of fork, and where the process ends, it does nothing."""
    code = library().cupool_free(p)
    if code not in (OK, FORKED):
        raise CupoolError(code, library().cupool_last_error().decode(errors="replace"))
