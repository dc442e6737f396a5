// A cuda.h to be found before CUDA's own, by an -I in front of it in
// CGO_CFLAGS, so that gorgonia.org/cu v0.9.6 compiles with CUDA 13.
//
// CUDA 13 gave five names that cu uses to functions with other parameters.
// The functions that cu means are still in the driver; here they are declared
// again and get their names back. Nothing changes with older headers.

#include_next <cuda.h>

#if CUDA_VERSION >= 13000 && !defined(CUPOOL_CUDA_H) && !defined(__CUDA_API_VERSION_INTERNAL)
#define CUPOOL_CUDA_H

#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges

#ifdef __cplusplus
extern "C" {
#endif

#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev);
CUresult CUDAAPI cuMemAdvise(CUdeviceptr p, size_t n, CUmem_advise advice, CUdevice dev);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice to, CUstream stream);
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n);
CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n);

#ifdef __cplusplus
}
#endif
#endif
