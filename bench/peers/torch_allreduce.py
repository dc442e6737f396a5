"""Sums float32 over all GPUs of this machine in PyTorch, by NCCL, and prints a line
of JSON for each size: the time of a sum, and the bandwidth of the busiest link.

usage: torchrun --nproc-per-node N torch_allreduce.py

It takes each size in four ways: a call at a time or as a CUDA graph of ten, in usual
memory or in that of a pool that is registered with NCCL.
"""
import json
import os
import time

import torch
import torch.distributed as dist

IN_GRAPH = 10
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda", torch.cuda.current_device())
dist.init_process_group("nccl", device_id=device)


def tensor(mib, pool):
    if pool is None:
        return torch.zeros(mib << 18, device=device)
    with torch.cuda.use_mem_pool(pool):
        return torch.zeros(mib << 18, device=device)


def microseconds(f, times):
    f()
    dist.barrier()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        f()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times * 1e6


def measure(mib, pool, registered):
    x = tensor(mib, pool)
    if registered:
        dist.group.WORLD._get_backend(device).register_mem_pool(pool)

    def call():
        dist.all_reduce(x)

    times = max(20, min(400, 8192 // mib))
    for _ in range(5):
        call()
    results = {False: microseconds(call, times)}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(IN_GRAPH):
            call()
    results[True] = microseconds(graph.replay, max(2, times // IN_GRAPH)) / IN_GRAPH
    for captured, us in results.items():
        if rank == 0:
            gb = (mib << 20) / 1e3 / us * 2 * (ranks - 1) / ranks
            print(json.dumps({"MiB": mib, "registered": registered, "captured": captured, "us": round(us, 1), "GB/s": round(gb, 1)}), flush=True)
    if registered:
        dist.group.WORLD._get_backend(device).deregister_mem_pool(pool)


for mib in (1, 4, 16, 64, 256, 1024):
    measure(mib, None, False)
try:
    for mib in (1, 4, 16, 64, 256, 1024):
        measure(mib, torch.cuda.MemPool(dist.group.WORLD._get_backend(device).mem_allocator), True)
except Exception as e:  # older than the registration of pools
    if rank == 0:
        print(json.dumps({"registered": True, "error": str(e).splitlines()[0]}), flush=True)
dist.destroy_process_group()
