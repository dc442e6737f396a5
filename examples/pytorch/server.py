"""A server that gives its GPU memory back while nobody asks: weights sleep and wake, and the graph stays good."""

import cupool.torch

cupool.torch.install()

import torch


def free():
    return f"{torch.cuda.mem_get_info()[0] >> 20} MiB free"


with torch.no_grad():
    with cupool.torch.tag("weights"):
        weights = [torch.randn(4096, 4096, device="cuda") / 64 for _ in range(16)]
    x = torch.randn(8, 4096, device="cuda")

    def model():
        y = x
        for w in weights:
            y = (y @ w).relu()
        return y

    model()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model()
    graph.replay()
    before = out.clone()
    print("awake:", free())

    cupool.torch.sleep("weights")
    print("asleep:", free())

    cupool.torch.wake("weights")
    graph.replay()
    print("awake again:", free(), "and the same answer" if torch.equal(out, before) else "and another answer")
