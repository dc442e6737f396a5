"""Trains the perceptron of examples/mlp and the residual network of
torch_networks.py in PyTorch, on several GPUs by DistributedDataParallel, and prints
the time of a step, one operation after the other ("eager") and as a CUDA graph
("graph"), one line of JSON each. float32 without TF32; random data that lies on the
GPU.

usage: torchrun --nproc-per-node N torch_ddp.py [-batch B] [-hidden W,W,…]

B is the batch of all GPUs together.
"""
import argparse
import itertools
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_networks

args = argparse.ArgumentParser()
args.add_argument("-batch", type=int, default=1024)
args.add_argument("-hidden", default="2048,2048")
args = args.parse_args()
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda", torch.cuda.current_device())
dist.init_process_group("nccl", device_id=device)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def mlp():
    widths = [784, *map(int, args.hidden.split(",")), 10]
    layers = []
    for i, o in itertools.pairwise(widths):
        layers += [nn.Linear(i, o), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def measure(name, make, shape, batch):
    torch.manual_seed(1)
    x, y = torch.randn(batch, *shape, device=device), torch.randint(0, 10, (batch,), device=device)
    part = slice(rank * batch // ranks, (rank + 1) * batch // ranks)
    x, y = x[part].contiguous(), y[part].contiguous()
    result = {"network": name, "batch": batch, "ranks": ranks}
    for graphed in (False, True):
        torch.manual_seed(2)
        side = torch.cuda.Stream()  # DDP is made on the stream that is captured
        with torch.cuda.stream(side):
            net = DistributedDataParallel(make().to(device), device_ids=[device.index], gradient_as_bucket_view=True, broadcast_buffers=False)
            opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
            losses = []

            def step():
                opt.zero_grad(set_to_none=True)
                loss = nn.functional.cross_entropy(net(x), y)
                loss.backward()
                opt.step()
                return loss.detach()

            for _ in range(12):
                losses.append(step())
            run = step
            if graphed:
                torch.cuda.synchronize()
                opt.zero_grad(set_to_none=True)
                run = torch.cuda.CUDAGraph()
                with torch.cuda.graph(run, stream=side, capture_error_mode="thread_local"):
                    step()
                run = run.replay
            for _ in range(10):
                run()
            dist.barrier()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(100):
                run()
            torch.cuda.synchronize()
            result["graph_us" if graphed else "eager_us"] = round((time.perf_counter() - start) / 100 * 1e6, 1)
        if not graphed:
            means = torch.stack(losses)
            dist.all_reduce(means, op=dist.ReduceOp.AVG)
            result["losses"] = [round(v, 6) for v in means[:3].tolist()]
            if rank == 0:
                print(json.dumps(result), flush=True)
    if rank == 0:
        print(json.dumps(result), flush=True)


measure("mlp", mlp, (784,), args.batch)
for batch in (64, 1024):
    measure(f"resnet-{batch}", torch_networks.resnet, (1, 28, 28), batch)
dist.destroy_process_group()
