"""Trains the networks of examples/gorgonia in PyTorch on random data and prints
the time of a step, op by op (eager) or as a CUDA graph (graph), one line of JSON
each. float32 without TF32. Steps warm the GPU up for some seconds (3) before as
many are measured.

usage: torch_networks.py [-how eager|graph] [-seconds N] [NETWORK...]

convnet-50     Gorgonia's convolutional network, batch 50, RMSProp
convnet-128    the same, batch 128
lstm-cell      64 inputs, 256 units, 32 steps, batch 64, a linear layer of 64
               outputs at every step, Adam; nn.LSTMCell in a loop
lstm-fused     the same with nn.LSTM, which is cuDNN's
resnet         28×28 images, three stages of two basic blocks (16, 32 and 64
               channels) with batch norm, batch 64, SGD with momentum
"""
import argparse
import json
import sys
import time

import torch
from torch import nn

GPU = "cuda"


def conv(inputs, outputs, size=3, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


def convnet():
    def stage(i, o):
        return [conv(i, o), nn.ReLU(), nn.MaxPool2d(2, 2)]

    return nn.Sequential(
        *stage(1, 32), nn.Dropout(0.2), *stage(32, 64), nn.Dropout(0.2), *stage(64, 128), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(1152, 625, bias=False), nn.ReLU(), nn.Dropout(0.55), nn.Linear(625, 10, bias=False))


class LSTM(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.fused = fused
        self.recurrent = nn.LSTM(64, 256) if fused else nn.LSTMCell(64, 256)
        self.output = nn.Linear(256, 64)

    def forward(self, x):
        if self.fused:
            return self.output(self.recurrent(x)[0])
        state = [torch.zeros(x.shape[1], 256, device=GPU) for _ in range(2)]
        outputs = []
        for now in x:
            state = self.recurrent(now, state)
            outputs.append(self.output(state[0]))
        return torch.stack(outputs)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.way = nn.Sequential(conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU(),
                                 conv(outputs, outputs), nn.BatchNorm2d(outputs))
        self.short = nn.Identity()
        if inputs != outputs:
            self.short = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.way(x) + self.short(x))


def resnet():
    blocks = [Block(*b) for b in ((16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1))]
    return nn.Sequential(conv(1, 16), nn.BatchNorm2d(16), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def images(batch):
    return torch.randn(batch, 1, 28, 28, device=GPU), torch.randint(0, 10, (batch,), device=GPU)


def texts():
    return torch.randn(32, 64, 64, device=GPU), torch.randint(0, 64, (32 * 64,), device=GPU)


def rmsprop(p):
    return torch.optim.RMSprop(p, lr=1e-3, capturable=True)


def adam(p):
    return torch.optim.Adam(p, lr=1e-3, capturable=True)


def momentum(p):
    return torch.optim.SGD(p, lr=0.1, momentum=0.9)


NETWORKS = {
    "convnet-50": (convnet, lambda: images(50), rmsprop),
    "convnet-128": (convnet, lambda: images(128), rmsprop),
    "lstm-cell": (lambda: LSTM(False), texts, adam),
    "lstm-fused": (lambda: LSTM(True), texts, adam),
    "resnet": (resnet, lambda: images(64), momentum),
}


def run_for(seconds, step):
    """Runs steps until the GPU has done so many seconds of them; returns how many and the time."""
    start, steps, took = time.perf_counter(), 0, 0
    while took < seconds:
        for _ in range(50):
            step()
        torch.cuda.synchronize()
        steps += 50
        took = time.perf_counter() - start
    return steps, took


def measure(name, how, seconds):
    make, data, optimizer = NETWORKS[name]
    net, (x, y) = make().to(GPU), data()
    opt = optimizer(net.parameters())

    def step():
        opt.zero_grad(set_to_none=True)
        z = net(x)
        nn.functional.cross_entropy(z.reshape(-1, z.shape[-1]), y).backward()
        opt.step()

    torch.cuda.reset_peak_memory_stats()
    if how == "graph":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(4):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        opt.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            step()
        step = graph.replay
    run_for(seconds, step)
    steps, took = run_for(seconds, step)
    result = {"network": name, "how": how, "us": round(took / steps * 1e6, 1), "peak_MiB": round(torch.cuda.max_memory_allocated() / 2**20, 1)}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-how", choices=["eager", "graph"], default="eager")
    parser.add_argument("-seconds", type=float, default=3)
    parser.add_argument("network", nargs="*")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for name in args.network or NETWORKS:
        measure(name, args.how, args.seconds)
