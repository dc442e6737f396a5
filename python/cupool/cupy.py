"""CuPy on cupool: cupool.cupy.install(). Blocks that CuPy frees serve PyTorch and Numba, and theirs serve CuPy."""

import sys

from . import _library

__all__ = ["install", "uninstall"]

_allocator = None


def install():
    """Makes cupool the allocator of CuPy's device memory in this process. A second call does nothing. What CuPy
    allocated before stays in its own pool."""
    global _allocator
    if _allocator is not None:
        return
    import cupy

    def alloc(size, device):
        try:
            return _library.alloc(device, size, cupy.cuda.get_current_stream().ptr)
        except _library.OutOfMemoryError as err:
            raise cupy.cuda.memory.OutOfMemoryError(size, 0) from err

    def free(p, device):
        if p:
            _library.free(p)

    allocator = cupy.cuda.PythonFunctionAllocator(alloc, free)
    cupy.cuda.set_allocator(allocator.malloc)
    _forget_streams(cupy.cuda.Stream)
    _allocator = allocator


def _forget_streams(kind):
    """Has the pool forget each stream before CuPy destroys it, since it would go on to use the handle."""
    destroy = getattr(kind, "__del__", None)
    if destroy is None or getattr(destroy, "forgets", False):
        return

    def forget_and_destroy(stream, *args, **kwargs):
        if stream.ptr > 2 and not sys.is_finalizing():  # below are the driver's own
            try:
                _library.call("forget_stream", max(0, getattr(stream, "device_id", 0)), stream.ptr)
            except _library.CupoolError:
                return  # the pool uses it yet: a handle that stays is better than one that crashes the driver
        destroy(stream, *args, **kwargs)

    forget_and_destroy.forgets = True
    kind.__del__ = forget_and_destroy


def uninstall():
    """Gives CuPy its own pool back. Arrays of cupool stay good."""
    global _allocator
    if _allocator is None:
        return
    import cupy

    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    _allocator = None
