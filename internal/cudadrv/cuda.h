// CUDA's cuda.h for gorgonia.org/cu v0.9.6, to be found before CUDA's own: by an -I of
// this folder in CGO_CFLAGS. The comment of the root's cu_bridge.go has the whole line.
//
// CUDA 13 gave five names that cu uses to functions with other parameters. The driver
// still has those that cu means. Here they are declared, and get their names back. With
// CUDA 12's header and older ones this one changes nothing.

#include_next <cuda.h>

#if CUDA_VERSION >= 13000 && !defined(CUPOOL_CUDA_H)
#define CUPOOL_CUDA_H

#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges

#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev);
CUresult CUDAAPI cuMemAdvise(CUdeviceptr p, size_t n, CUmem_advise advice, CUdevice dev);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice to, CUstream stream);
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n);
CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n);

#endif
