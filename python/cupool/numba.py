"""Numba on cupool: cupool.numba.install(), by Numba's interface for managers of memory."""

import ctypes

from . import _library

__all__ = ["install"]

_installed = False


def install():
    """Makes cupool the allocator of numba.cuda in this process, before it makes its first context. A second call does
    nothing. Numba names no stream when it allocates: its arrays belong to the default stream."""
    global _installed
    if _installed:
        return
    from numba import cuda

    cuda.set_memory_manager(_manager())
    _installed = True


def _pointer(driver, address):
    """An address as this version of Numba wants it."""
    if getattr(driver, "USE_NV_BINDING", True):  # a Numba that does not ask has NVIDIA's alone
        return driver.binding.CUdeviceptr(address)
    return ctypes.c_uint64(address)


def _manager():
    from numba import cuda
    from numba.cuda.cudadrv import driver

    class Cupool(cuda.HostOnlyCUDAMemoryManager):
        def initialize(self):
            super().initialize()

        def memalloc(self, size):
            address = _library.alloc(self._device(), size, None)
            return driver.MemoryPointer(self.context, _pointer(driver, address), size,
                                        finalizer=lambda: _library.free(address))

        def _device(self):
            return int(self.context.device.id)

        def get_memory_info(self):
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            _library.call("memory_info", self._device(), ctypes.byref(free), ctypes.byref(total), None)
            return cuda.MemoryInfo(free=free.value, total=total.value)

        def get_ipc_handle(self, memory):
            raise NotImplementedError("cupool: Numba's handles for other processes take memory of the driver's own")

        def reset(self):
            super().reset()

        def defer_cleanup(self):
            return super().defer_cleanup()

        @property
        def interface_version(self):
            return 1

    return Cupool
