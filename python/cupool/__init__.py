"""cupool: one pool of GPU memory for every library of a process.

    import cupool.torch; cupool.torch.install()     PyTorch, before it uses CUDA
    import cupool.cupy; cupool.cupy.install()       CuPy
    import cupool.numba; cupool.numba.install()     Numba

or, without a change to the program, "python -m cupool.torch train.py ARGS". The functions of this module look at the
pool of a device, whoever allocates from it. They open libcupool.so when they are first called; a process that
forks calls them in the child.
"""

import ctypes as _ctypes
import os as _os

from ._library import CupoolError, OutOfMemoryError
from . import _library

__all__ = [
    "CupoolError", "OutOfMemoryError", "forget_stream", "history", "label", "reset_peaks", "serve", "serve_stop", "set_limit",
    "settings", "stats", "trim", "version", "write",
]
__version__ = "0.1.0"


def version():
    """The version of the library, as "0.1"."""
    number = _library.library().cupool_version()
    return f"{number // 1000}.{number % 1000}"


def stats(device=0):
    """The statistics of a device as a dictionary of dictionaries: PyTorch's names, and cupool's own. Bytes and counts.

    stats()["reserved_bytes"]["all"]["current"] is what the pools of the device hold.
    """
    raw = _library.Stats(struct_size=_ctypes.sizeof(_library.Stats))
    _library.call("get_stats", device, _library.ALL, _ctypes.byref(raw))
    return _plain(raw)


def _plain(struct):
    out = {}
    for name, kind in struct._fields_:
        if name == "struct_size":
            continue
        value = getattr(struct, name)
        out[name] = _plain(value) if isinstance(value, _ctypes.Structure) else value
    return out


def reset_peaks(device=0):
    """Sets all peaks of a device to the current values."""
    _library.call("reset_peaks", device)


def trim(device=0, keep=0):
    """Gives free memory back to the device until at most keep bytes are reserved. Returns the bytes that went."""
    released = _ctypes.c_size_t()
    _library.call("trim", device, _library.ALL, _library.size(keep), _ctypes.byref(released))
    return released.value


def forget_stream(stream, device=0):
    """Says that a stream is about to be destroyed: waits for its work, and its free memory goes to the others. Programs
    that make streams of their own call it for those that the pool was given, as torch.cuda.ExternalStream. stream is
    the handle as a number."""
    _library.call("forget_stream", device, stream)


def set_limit(limit, device=0):
    """Bounds what the pools of a device reserve, in bytes, beside the limit of the settings; 0 ends the bound."""
    _library.call("set_limit", device, _library.size(limit))


def settings(device=0):
    """The settings in effect, one "KEY:VALUE" a line with where each is from."""
    length = _ctypes.c_size_t()
    _library.call("settings", device, None, 0, _ctypes.byref(length))
    text = _ctypes.create_string_buffer(length.value + 1)
    _library.call("settings", device, text, len(text), _ctypes.byref(length))
    return text.value.decode()


_FORMATS = {"torch": 0, "pprof": 1, "json": 2}


def write(path, format="torch", device=-1):
    """Writes what the pools of a device, or of all with -1, hold: for pytorch.org/memory_viz ("torch"), for
    "go tool pprof" ("pprof"), or for cupool's tools ("json")."""
    if format not in _FORMATS:
        raise ValueError(f"format {format!r} is none of {', '.join(_FORMATS)}")
    _library.call("write", device, _FORMATS[format], _library.text(_os.fsencode(path)))


def history(enabled=True, events=0, sample_bytes=0, device=0):
    """Begins or ends cupool's own history, which write() puts into its files. PyTorch's has Python's stacks."""
    if enabled:
        _library.call("history_start", device, _library.size(events), _library.size(sample_bytes))
    else:
        _library.call("history_stop", device)


def serve(address="localhost:0"):
    """Serves the live page of all pools and returns its URL. Whoever reaches it sees names: a private address only."""
    url = _ctypes.create_string_buffer(512)
    _library.call("serve", _library.text(address.encode()), url, len(url))
    return url.value.decode()


def serve_stop():
    """Ends the page."""
    _library.call("serve_stop")


class label:
    """with cupool.label("kv cache"): what the thread allocates stands under the label in snapshots and reports."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        _library.call("label_push", _library.text(self.name.encode()))
        return self

    def __exit__(self, *exc):
        _library.call("label_pop")
