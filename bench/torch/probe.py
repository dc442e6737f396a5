"""Tries what PyTorch's users do, each in a process of its own, and prints a table.

usage: probe.py all ALLOCATOR [JOBS]     default, expandable or cupool; JOBS at a time (6)
       probe.py NAME ALLOCATOR           one, with its output
A probe asserts what it found and returns a text for the table. "beyond" is what cupool promises and PyTorch does not.
"""

import concurrent.futures
import ctypes
import importlib.util
import itertools
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import textwrap
import time

import choose

PROBES = {}
ONLY_CUPOOL = set()
ALONE = set()
TWO_GPUS = set()


def probe(function):
    PROBES[function.__name__] = function
    return function


def cupool_only(function):
    ONLY_CUPOOL.add(function.__name__)
    return probe(function)


def alone(function):
    """A probe of the device's free memory, or of time: others at work would be seen in it."""
    ALONE.add(function.__name__)
    return function


def two_gpus(function):
    """A probe that takes two GPUs, and is left out where there is one."""
    TWO_GPUS.add(function.__name__)
    return function


class Beyond(Exception):
    """Another allocator than cupool lacks what PyTorch does not promise."""


def beyond(holds, text):
    if not holds and MODE != "cupool":
        raise Beyond(text)
    assert holds, text


def mib(n):
    return f"{n / 2**20:.0f} MiB"


# ------------------------------------------------------------------ statistics, snapshots, history

@probe
def statistics(torch):
    keep = [torch.empty(n * 3001, device="cuda") for n in range(1, 200)]
    del keep[::2]
    torch.cuda.synchronize()
    stats, segments = torch.cuda.memory_stats(), torch.cuda.memory_snapshot()
    found = {
        "reserved_bytes.all.current": sum(s["total_size"] for s in segments),
        "allocated_bytes.all.current": sum(s["allocated_size"] for s in segments),
        "active_bytes.all.current": sum(s["active_size"] for s in segments),
        "allocation.all.current": sum(b["state"] == "active_allocated" for s in segments for b in s["blocks"]),
    }
    if not any(s["is_expandable"] for s in segments):
        found["segment.all.current"] = len(segments)
        found["inactive_split_bytes.all.current"] = sum(
            b["size"] for s in segments for b in s["blocks"] if b["state"] == "inactive" and len(s["blocks"]) > 1)
    for key, value in found.items():
        assert stats[key] == value, f"{key}: {stats[key]}, and the snapshot has {value}"
    for s in segments:
        assert sum(b["size"] for b in s["blocks"]) == s["total_size"], "blocks leave gaps"
    more = torch.cuda.memory_allocated() - sum(-(-t.nbytes // 512) * 512 for t in keep)
    beyond(more == 0, f"blocks are larger than tensors by {mib(more)}")
    return f"{len(found)} counters agree over {len(segments)} segments"


@probe
def peaks(torch):
    x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    del x
    assert torch.cuda.max_memory_allocated() >= 64 << 20
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() < 64 << 20
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0
    return "reset"


@probe
def summary(torch):
    torch.empty(1000, device="cuda")
    return f"{len(torch.cuda.memory_summary())} characters"


@probe
def accelerator(torch):
    x = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() >= x.nbytes
    del x
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() == torch.cuda.memory_reserved()
    return "torch.accelerator sees the same pool"


@alone
@probe
def empty_cache(torch):
    x = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    full = torch.cuda.mem_get_info()[0]
    del x
    syncs = torch.cuda.memory_stats()["num_sync_all_streams"]
    torch.cuda.empty_cache()
    assert torch.cuda.memory_stats()["num_sync_all_streams"] == syncs + 1
    back = torch.cuda.mem_get_info()[0] - full
    beyond(back >= 500 << 20, f"{mib(back)} of 512 went back")
    return f"{mib(back)} went back"


def outer(torch, n):
    return torch.empty(n, device="cuda")


@probe
def history(torch):
    torch.cuda.memory._record_memory_history(stacks="python")
    x = outer(torch, 1 << 20)
    y = outer(torch, 1 << 19)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        z = y + 1
    y.record_stream(side)
    del y, z
    torch.cuda.synchronize()
    again = outer(torch, 1 << 19)
    snapshot = torch.cuda.memory._snapshot()
    trace = snapshot["device_traces"][0]
    actions = [e["action"] for e in trace]
    for action in ("alloc", "free_requested", "free_completed"):
        assert action in actions, f"{action} is missing in {actions}"
    assert any("segment" in a for a in actions), actions
    allocs = [e for e in trace if e["action"] == "alloc"]
    assert any(f["name"] == "outer" for f in allocs[0]["frames"]), allocs[0]["frames"][:3]
    assert abs(allocs[0]["time_us"] / 1e6 - time.time()) < 60, allocs[0]["time_us"]
    live = [b for s in snapshot["segments"] for b in s["blocks"] if b["address"] == x.data_ptr()]
    assert any(f["name"] == "outer" for f in live[0]["frames"]), live
    with tempfile.TemporaryDirectory() as d:
        torch.cuda.memory._dump_snapshot(d + "/s.pickle")
        dumped = pickle.load(open(d + "/s.pickle", "rb"))
        from torch.cuda import _memory_viz
        page = _memory_viz.trace_plot(dumped) + _memory_viz.segment_plot(dumped)
        text = _memory_viz.trace(dumped)
    torch.cuda.memory._record_memory_history(enabled=None)
    del again
    return f"{len(trace)} events, a page of {len(page)} and a text of {len(text)} characters"


@probe
def profiler(torch):
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as p:
        x = torch.randn(1 << 20, device="cuda")
        del x
    got = max((getattr(e, "self_device_memory_usage", 0) or 0) for e in p.key_averages())
    assert got >= 4 << 20, got
    return f"{mib(got)} in an operation"


@probe
def gpu_trace(torch):
    from torch.cuda import _gpu_trace
    seen, gone = [], []
    torch._C._activate_gpu_trace()
    _gpu_trace.register_callback_for_memory_allocation(seen.append)
    _gpu_trace.register_callback_for_memory_deallocation(gone.append)
    x = torch.empty(1000, device="cuda")
    p = x.data_ptr()
    del x
    assert p in seen and p in gone, (p, seen, gone)
    return f"{len(seen)} allocations and {len(gone)} frees seen"


# ------------------------------------------------------------------ graphs and compilers

@probe
def graph(torch):
    x = torch.randn(1000, 1000, device="cuda")
    g, s = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(s):
        x @ x
    torch.cuda.synchronize()
    with torch.cuda.graph(g):
        z = (x @ x).relu_()
        w = z + 1
    junk = [torch.full((1000, 1000), 7.0, device="cuda") for _ in range(50)]
    for _ in range(20):
        g.replay()
    torch.cuda.synchronize()
    wrong = (w - ((x @ x).relu() + 1)).abs().max().item()
    assert wrong == 0 and all(j.eq(7).all().item() for j in junk)
    return "contents stay while others allocate"


@probe
def graph_train(torch):
    torch.manual_seed(0)
    x, y = torch.randn(1000, 1000, device="cuda"), torch.randint(0, 10, (1000,), device="cuda")
    m = torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 10)).cuda()
    o, s = torch.optim.SGD(m.parameters(), 0.01), torch.cuda.Stream()

    def step():
        o.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(m(x), y)
        loss.backward()
        o.step()
        return loss

    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(3):
            first = step().item()
    torch.cuda.current_stream().wait_stream(s)
    g = torch.cuda.CUDAGraph()
    o.zero_grad(set_to_none=True)
    with torch.cuda.graph(g):
        loss = step()
    for _ in range(50):
        g.replay()
    torch.cuda.synchronize()
    assert loss.item() < first
    return f"loss {first:.4f} to {loss.item():.6f}"


@alone
@probe
def graphs_give_back(torch):
    x = torch.randn(512, 512, device="cuda")
    torch.cuda.synchronize()
    x @ x
    before = None
    for i in range(30):
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            y = torch.empty(16 << 20, dtype=torch.uint8, device="cuda")
            z = x @ x
        g.replay()
        torch.cuda.synchronize()
        del g, y, z
        if i == 4:
            before = torch.cuda.mem_get_info()[0]
    torch.cuda.empty_cache()
    lost = before - torch.cuda.mem_get_info()[0]
    beyond(lost < 64 << 20, f"{mib(lost)} did not come back")
    return "30 graphs, nothing lost"


@probe
def graph_shared_pool(torch):
    pool, graphs, outs = torch.cuda.graph_pool_handle(), [], []
    w = torch.randn(256, 256, device="cuda")
    w @ w
    torch.cuda.synchronize()
    for n in (64, 32, 16):
        x = torch.randn(n, 256, device="cuda")
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g, pool=pool):
            out = (x @ w).relu() @ w
        graphs.append(g)
        outs.append((x, out))
    for g, (x, out) in list(zip(graphs, outs))[::-1]:
        g.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, (x @ w).relu() @ w)
    return "3 graphs in one pool"


def _compile(torch, mode):
    torch.manual_seed(0)
    x = torch.randn(1000, 1000, device="cuda")
    m = torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 10)).cuda()
    f = torch.compile(m, mode=mode)
    for _ in range(6):
        m.zero_grad(set_to_none=True)  # gradients lie in the memory of the graph, which the next step overwrites
        torch.compiler.cudagraph_mark_step_begin()
        r = f(x).sum()
        r.backward()
    found = [p.grad.clone() for p in m.parameters()]
    m.zero_grad(set_to_none=True)
    expected = m(x).sum()
    expected.backward()
    assert torch.allclose(r, expected, rtol=1e-2), (r.item(), expected.item())
    for p, g in zip(m.parameters(), found):
        wrong = (g - p.grad).abs().max().item()
        assert wrong <= 1e-2 * p.grad.abs().max().item(), wrong
    return f"{r.item():.4f}"


@probe
def compile_default(torch):
    return _compile(torch, "default")


@probe
def compile_reduce_overhead(torch):
    return _compile(torch, "reduce-overhead")


@probe
def compile_trees(torch):
    @torch.compile(mode="reduce-overhead")
    def f(x, flag):
        return (x @ x).relu() + 1 if flag else (x @ x).tanh() - 1

    x = torch.randn(256, 256, device="cuda")
    with torch.no_grad():
        for i in range(12):
            torch.compiler.cudagraph_mark_step_begin()
            y = f(x, i % 2 == 0).clone()
            z = f(y, i % 3 == 0)
    e = (y @ y).tanh() - 1
    assert torch.allclose(z, e, atol=1e-2, rtol=1e-2)
    return "branches of graphs"


@probe
def mempool(torch):
    p = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(p):
        x = torch.ones(1 << 20, device="cuda")
    assert x.sum().item() == 1 << 20
    found = p.snapshot() if hasattr(p, "snapshot") else torch.cuda.memory_snapshot(p.id)
    assert sum(s["active_size"] for s in found) == 4 << 20, found
    count = p.use_count()
    del x, p
    torch.cuda.empty_cache()
    return f"use count {count}"


@probe
def mempool_on_oom(torch):
    p = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(p):
        x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    del x
    free, total = torch.cuda.mem_get_info()
    used = total - free
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (64 << 20)) / total)
    y = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
    del y, p
    return f"{mib(used)} used"


@probe
def mempool_allocator(torch):
    source = textwrap.dedent("""
        #include <cuda_runtime_api.h>
        #include <stddef.h>
        #include <sys/types.h>
        int allocs, frees;
        extern "C" void* my_alloc(ssize_t size, int, void*) { void* p = 0; cudaMalloc(&p, size); allocs++; return p; }
        extern "C" void my_free(void* p, ssize_t, int, void*) { cudaFree(p); frees++; }
        extern "C" int count(int f) { return f ? frees : allocs; }
    """)
    with tempfile.TemporaryDirectory() as d:
        pathlib.Path(d, "a.cpp").write_text(source)
        spec = importlib.util.spec_from_file_location("_build", pathlib.Path(__file__).resolve().parents[2] /
                                                      "python/cupool/torch/_build.py")
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        flags = [f for p in build.includes() for f in ("-isystem", str(p))]
        pathlib.Path(d, "cuda_runtime.h").write_text("#include <cuda_runtime_api.h>\n")
        subprocess.run(["g++", "-shared", "-fPIC", *flags, d + "/a.cpp", "-o", d + "/a.so"], check=True)
        lib = ctypes.CDLL(d + "/a.so")
        a = torch.cuda.memory.CUDAPluggableAllocator(d + "/a.so", "my_alloc", "my_free")
        p = torch.cuda.MemPool(a.allocator())
        with torch.cuda.use_mem_pool(p):
            x = torch.ones(1 << 22, device="cuda")
        assert x.sum().item() == 1 << 22
        assert lib.count(0) == 1, lib.count(0)
        del x, p
        torch.cuda.empty_cache()
        assert lib.count(1) == 1, lib.count(1)
    return "a pool with an allocator of its own"


# ------------------------------------------------------------------ out of memory

@probe
def out_of_memory(torch):
    try:
        torch.empty(1 << 45, device="cuda", dtype=torch.uint8)
        raise AssertionError("nothing was raised")
    except torch.OutOfMemoryError as err:
        text = str(err)
    assert text.startswith("CUDA out of memory. Tried to allocate 32768.00 GiB. GPU 0 has a total capacity of"), text
    print(text)
    x = torch.randn(1000, 1000, device="cuda", requires_grad=True)
    (x @ x).sum().backward()
    assert x.grad is not None
    return f"{text.count(chr(10)) + 1} lines; training goes on"


@probe
def out_of_memory_observer(torch):
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *a: seen.append(a))
    try:
        torch.empty(1 << 45, device="cuda", dtype=torch.uint8)
    except torch.OutOfMemoryError:
        pass
    assert len(seen) == 1 and torch.cuda.memory_stats()["num_ooms"] == 1, seen
    return "told once"


@probe
def out_of_memory_capture(torch):
    x = torch.randn(10, device="cuda")
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.empty(1 << 45, device="cuda", dtype=torch.uint8)
        raise AssertionError("nothing was raised")
    except torch.OutOfMemoryError as err:
        assert "out of memory" in str(err)
    return f"the sum is {x.sum().isfinite().item()}"


@probe
def batch_size_search(torch):
    from accelerate.utils import find_executable_batch_size
    torch.cuda.set_per_process_memory_fraction(0.05)
    tried = []

    @find_executable_batch_size(starting_batch_size=1 << 14)
    def run(batch_size):
        tried.append(batch_size)
        x = torch.empty(batch_size, 1 << 20, device="cuda", dtype=torch.uint8)
        return x.numel()

    run()
    assert len(tried) > 1
    return f"accelerate: {tried[0]} to {tried[-1]}"


@probe
def fraction(torch):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        torch.empty(int(total * 0.02), device="cuda", dtype=torch.uint8)
        raise AssertionError("the bound did not hold")
    except torch.OutOfMemoryError:
        pass
    assert abs(torch.cuda.get_per_process_memory_fraction() - 0.01) < 1e-6
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.empty(int(total * 0.02), device="cuda", dtype=torch.uint8)
    return "holds and ends"


@probe
def settings_change(torch):
    n = 21 << 20
    torch.cuda.init()
    torch.cuda.memory._set_allocator_settings("")
    a = torch.cuda.memory_stats()["active_bytes.all.allocated"]
    x = torch.empty(n, device="cuda")
    b = torch.cuda.memory_stats()["active_bytes.all.allocated"]
    torch.cuda.memory._set_allocator_settings("roundup_power2_divisions:4")
    y = torch.empty(n, device="cuda")
    c = torch.cuda.memory_stats()["active_bytes.all.allocated"]
    assert b - a == x.nbytes and c - b == 96 << 20, (b - a, c - b, y.nbytes)
    return "84 MiB become 96 MiB"


# ------------------------------------------------------------------ streams, threads, libraries

@probe
def cudnn_benchmark(torch):
    torch.backends.cudnn.benchmark = True
    c = torch.nn.Conv2d(64, 64, 3).cuda()
    return f"{c(torch.randn(8, 64, 64, 64, device='cuda')).sum().isfinite().item()}"


@probe
def record_stream(torch):
    s = torch.cuda.Stream()
    x = torch.full((64 << 20,), 1.0, device="cuda")
    y = torch.mul(x, 2)  # loads the kernels, so that nothing below waits for the device
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    with torch.cuda.stream(s):
        torch.cuda._sleep(int(2e9))
        torch.mul(x, 3, out=y)
    x.record_stream(s)
    p = x.data_ptr()
    del x
    z = torch.full((64 << 20,), 5.0, device="cuda")
    assert not s.query(), "the stream was done too early to show anything"
    assert z.data_ptr() != p, "the block was given again while it was used"
    torch.cuda.synchronize()
    assert y.eq(3).all().item() and z.eq(5).all().item()
    return "the block waits"


@probe
def last_freed(torch):
    x = torch.empty(8 << 20, device="cuda")
    p = x.data_ptr()
    del x
    y = torch.empty(8 << 20, device="cuda")
    return "the same block" if y.data_ptr() == p else "another block"


@probe
def careless_streams(torch):
    """PyTorch never gives one stream's memory to another; programs lean on it without record_stream."""
    side, bad = torch.cuda.Stream(), 0
    third = torch.cuda.Stream()
    for i in range(200):
        x = torch.full((1 << 20,), float(i), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(200000)
            y = x * 1
        del x
        with torch.cuda.stream(third):
            junk = torch.full((1 << 20,), -1.0, device="cuda")
        del junk
        if i % 20 == 19:
            side.synchronize()
            bad += not y.eq(float(i)).all().item()
    assert bad == 0, f"{bad} of 10 were overwritten"
    return "200 rounds, nothing overwritten"


@probe
def threads(torch):
    import threading
    failures = []

    def work(k):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(300):
                    n = 1 + (k * 7919 + i * 104729) % (1 << 20)
                    x = torch.full((n,), float(k), device="cuda")
                    assert x.sum().item() == n * k or n > 1 << 24 or abs(x.mean().item() - k) < 1e-3
        except BaseException as err:
            failures.append(err)

    ts = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    assert not failures, failures[0]
    return "8 threads"


@probe
def uncached(torch):
    torch.cuda.caching_allocator_enable(False)
    x = torch.ones(1 << 20, device="cuda")
    torch.cuda.caching_allocator_enable(True)
    y = torch.ones(1 << 20, device="cuda")
    assert x.sum().item() == y.sum().item()
    del x
    p = torch.cuda.caching_allocator_alloc(1 << 20)
    torch.cuda.caching_allocator_delete(p)
    return "off, on, and by hand"


@cupool_only
def cupy(torch):
    import cupy as cp
    import cupool.cupy
    cupool.cupy.install()
    torch.cuda.init()  # statistics are 0 before; the pool is opened by CuPy
    before = torch.cuda.memory_reserved()
    a = cp.arange(64 << 20, dtype=cp.float32)
    assert torch.cuda.memory_reserved() - before >= 256 << 20
    reserved = torch.cuda.memory_reserved()
    del a
    cp.cuda.get_current_stream().synchronize()
    b = torch.empty(60 << 20, device="cuda")
    assert torch.cuda.memory_reserved() == reserved, "PyTorch did not take CuPy's memory"
    c = cp.from_dlpack(b)
    assert c.shape == (60 << 20,)
    return "a block of CuPy serves PyTorch"


@cupool_only
def numba(torch):
    import cupool.numba
    cupool.numba.install()
    import numpy
    from numba import cuda
    torch.cuda.init()
    before = torch.cuda.memory_allocated()
    a = cuda.to_device(numpy.arange(1 << 20, dtype=numpy.float32))
    assert torch.cuda.memory_allocated() - before >= 4 << 20
    assert torch.as_tensor(a, device="cuda").sum().item() > 0
    del a
    return "Numba's arrays are of the pool"


@cupool_only
def page(torch):
    import urllib.request
    import cupool
    x = torch.empty(1 << 20, device="cuda")
    url = cupool.serve()
    text = urllib.request.urlopen(url).read().decode()
    cupool.serve_stop()
    with tempfile.TemporaryDirectory() as d:
        for f in ("torch", "pprof", "json"):
            cupool.write(f"{d}/{f}", f)
            assert os.path.getsize(f"{d}/{f}") > 100
    assert "cupool" in text and x.numel()
    return f"{len(text)} characters at {url}"


@alone
@cupool_only
def sleep_wake(torch):
    import cupool.torch
    with cupool.torch.tag("weights"):
        w = torch.randn(1 << 26, device="cuda")
    with cupool.torch.tag("cache"):
        c = torch.ones(1 << 26, device="cuda")
    total, p = w.double().sum().item(), w.data_ptr()
    x = torch.zeros(1 << 10, device="cuda")
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x.copy_(w[: 1 << 10])
    before = torch.cuda.mem_get_info()[0]
    cupool.torch.sleep("weights")
    cupool.torch.sleep("cache", keep=False)
    back = torch.cuda.mem_get_info()[0] - before
    assert back >= 500 << 20, mib(back)
    y = torch.ones(1 << 20, device="cuda") * 2
    cupool.torch.wake("weights")
    cupool.torch.wake("cache")
    assert w.data_ptr() == p and w.double().sum().item() == total
    c.fill_(3)
    x.zero_()
    g.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, w[: 1 << 10]) and y.sum().item() == 2 << 20 and c.mean().item() == 3
    return f"{mib(back)} went, contents and graph are good"


# ------------------------------------------------------------------ processes

@probe
def data_loader(torch):
    import torch.utils.data as data
    torch.ones(10, device="cuda")
    got = sum(b.sum().item() for b in data.DataLoader(torch.arange(100.0), batch_size=10, num_workers=2,
                                                     pin_memory=True))
    assert got == 4950
    return "forked workers"


@probe
def fork_before_use(torch):
    pid = os.fork()
    if pid == 0:
        try:
            ok = torch.ones(10, device="cuda").sum().item() == 10
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
    return "CUDA is first used in the child"


RECEIVER = """
import sys, pickle
sys.path.insert(0, {here!r})
import choose
choose.use({receiver!r})
import torch
from multiprocessing.connection import Client
c = Client({address!r}, authkey=b'k')
from multiprocessing import reduction
import torch.multiprocessing
for shape, fill in {want!r}:
    t = pickle.loads(c.recv_bytes())
    assert tuple(t.shape) == shape and t.eq(fill).all().item(), (t.shape, t.flatten()[:4])
    t.add_(1)
    torch.cuda.synchronize()
    c.send(1)
    c.recv()
    del t
c.close()
"""


ONE_SIZE = "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC"


def _ipc(torch, receiver):
    import io
    from multiprocessing import reduction
    from multiprocessing.connection import Listener
    import torch.multiprocessing
    want = [((1 << 20,), 3.0), ((100,), 4.0), ((40 << 20,), 5.0)]
    if (MODE, receiver) == ("cupool", "default") and ONE_SIZE not in os.environ:
        want.pop()  # memory in pieces of several sizes, for which PyTorch has no format (docs/python.md)
    with tempfile.TemporaryDirectory() as d, Listener(d + "/s", authkey=b"k") as listener:
        code = RECEIVER.format(here=os.path.dirname(os.path.abspath(__file__)), receiver=receiver, address=d + "/s",
                               want=want)
        torch.cuda.init()
        libc = ctypes.CDLL(None)
        libc.prctl(0x59616D61, ctypes.c_ulong(-1).value, 0, 0, 0)  # any process may trace this one
        child = subprocess.Popen([sys.executable, "-c", code])
        c = listener.accept()
        for shape, fill in want:
            t = torch.full(shape, fill, device="cuda")
            torch.cuda.synchronize()
            buffer = io.BytesIO()
            reduction.ForkingPickler(buffer).dump(t)
            c.send_bytes(buffer.getvalue())
            c.recv()
            assert t.eq(fill + 1).all().item()
            c.send(1)
        c.close()
        assert child.wait(60) == 0
    return f"{len(want)} tensors to a process with the allocator {receiver}"


@probe
def ipc_same(torch):
    return _ipc(torch, MODE)


@probe
def ipc_to_default(torch):
    return _ipc(torch, "default")


@cupool_only
def ipc_any_to_default(torch):
    os.environ[ONE_SIZE] = "1"  # before the pool is open
    return _ipc(torch, "default")


@cupool_only
def ipc_from_default(torch):
    """The sender is another process of this probe, with PyTorch's allocator."""
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "ipc_to_cupool", "default"],
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return "cupool receives from PyTorch's allocator"


@probe
def ipc_to_cupool(torch):
    return _ipc(torch, "cupool")


@probe
def exit_at_work(torch):
    code = "import sys; sys.path.insert(0, %r); import choose; choose.use(%r); import torch, faulthandler; " \
           "faulthandler.enable(); x = torch.ones(1 << 20, device='cuda'); torch.cuda._sleep(int(2e9)); y = x * 2; " \
           "sys.exit(7)" % (os.path.dirname(os.path.abspath(__file__)), MODE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, f"{done.returncode}: {done.stderr[-500:]}"
    return "the status arrives"


@probe
def faulthandler(torch):
    base = "import sys; sys.path.insert(0, %r); import faulthandler; faulthandler.enable(); import choose; " \
           "choose.use(%r); import torch; torch.ones(1, device='cuda'); %s; import ctypes; ctypes.string_at(0)"
    here = os.path.dirname(os.path.abspath(__file__))
    for again in ("pass", "faulthandler.enable()"):
        done = subprocess.run([sys.executable, "-c", base % (here, MODE, again)], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == -11 and "Segmentation fault" in done.stderr, \
            f"{again}: {done.returncode}: {done.stderr[-500:]}"
    return "before and after"


@probe
def signal_profile(torch):
    import signal
    ticks = []
    signal.signal(signal.SIGPROF, lambda *a: ticks.append(1))
    signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
    end = time.time() + 2
    while time.time() < end:
        torch.empty(1000, device="cuda")
    signal.setitimer(signal.ITIMER_PROF, 0)
    assert len(ticks) > 10
    return f"{len(ticks)} signals"


@cupool_only
def refuses(torch):
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as d:
        open(d + "/early.py", "w").write("import torch\nkept = torch.ones(1, device='cuda')\n")
        code = f"import sys; sys.path[:0] = [{here!r}, {d!r}, {here!r} + '/../../python']; import early; " \
               "import cupool.torch; cupool.torch.install()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert "early" in done.stderr and "InstallError" in done.stderr, done.stderr
        environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        code = f"import sys; sys.path.insert(0, {here!r} + '/../../python'); import cupool.torch; " \
               "cupool.torch.install()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                              env=environment)
        assert "cudaMallocAsync" in done.stderr and "InstallError" in done.stderr, done.stderr
    return "names the module; cudaMallocAsync stays"


@alone
@probe
def speed(torch):
    for _ in range(20000):
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(4096))
    stream = torch.cuda.current_stream().cuda_stream
    alloc, free = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete
    t = time.perf_counter()
    for _ in range(200000):
        free(alloc(4096, stream))
    return f"{(time.perf_counter() - t) / 200000 * 1e9:.0f} ns a pair from Python"


# ------------------------------------------------------------------ two GPUs in one process

def _agree(torch, x, y):
    """y, on the other GPU, has what x has. A view that is not contiguous is copied by a kernel, which writes the peer."""
    y.copy_(x)
    assert torch.equal(x.cpu(), y.cpu())
    y.copy_(x.t())
    assert torch.equal(x.t().cpu(), y.cpu())


@two_gpus
@probe
def peers(torch):
    for n in (16, 1000, 8000):  # small blocks, large ones, and what the pool grows by after access was given
        x, y = torch.randn(n, n, device="cuda:0"), torch.empty(n, n, device="cuda:1")
        _agree(torch, x, y)
        _agree(torch, y, x)
    del x, y
    torch.cuda.empty_cache()
    x, y = torch.randn(5000, 5000, device="cuda:0"), torch.empty(5000, 5000, device="cuda:1")
    _agree(torch, x, y)
    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
    return f"access both ways: {torch.cuda.can_device_access_peer(0, 1)}"


@two_gpus
@probe
def devices_apart(torch):
    """Counts, trims, limits and snapshots are of one GPU, whichever is the current one."""
    x, y = (torch.empty(n << 20, dtype=torch.uint8, device=device) for n, device in ((32, "cuda:0"), (64, "cuda:1")))
    assert [torch.cuda.memory_allocated(d) for d in (0, 1)] == [x.nbytes, y.nbytes]
    assert {s["device"] for s in torch.cuda.memory_snapshot()} == {0, 1}
    torch.cuda.set_per_process_memory_fraction(0.01, 1)
    torch.empty(4 << 30, dtype=torch.uint8, device="cuda:0")
    try:
        torch.empty(4 << 30, dtype=torch.uint8, device="cuda:1")
        raise AssertionError("the limit of GPU 1 does not hold")
    except torch.OutOfMemoryError as err:
        assert "GPU 1" in str(err), err
    torch.cuda.set_per_process_memory_fraction(1.0, 1)
    del y
    assert torch.cuda.memory_allocated(1) == 0
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(1) == 0 and torch.cuda.memory_allocated(0) == x.nbytes
    return "counted, limited and trimmed apart"


@two_gpus
@probe
def data_parallel(torch):
    import copy
    torch.manual_seed(0)
    one = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).to("cuda:0")
    both = torch.nn.DataParallel(copy.deepcopy(one), [0, 1])
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (one, both)]
    for i in range(20):
        x, losses = torch.randn(64 + 34 * i, 512, device="cuda:0"), []
        for m, o in zip((one, both), optimizers):
            losses.append((m(x) - x).pow(2).mean())
            losses[-1].backward()
            o.step()
            o.zero_grad()
        assert torch.allclose(*losses, rtol=1e-4), (i, losses)
    return f"the losses are those of one GPU, {losses[0].item():.5f}"


@two_gpus
@probe
def model_in_halves(torch):
    """The backward pass frees memory of each GPU on a thread of the other."""
    first, second = torch.nn.Linear(1024, 1024).to("cuda:0"), torch.nn.Linear(1024, 1024).to("cuda:1")
    sums = []
    for n in (100, 3000, 17, 5000, 100):
        x = torch.randn(n, 1024, device="cuda:0", requires_grad=True)
        loss = second(first(x).relu().to("cuda:1")).pow(2).mean()
        loss.backward()
        sums.append(loss.item())
        assert x.grad.isfinite().all()
        first.zero_grad(), second.zero_grad()
    return f"{len(sums)} steps"


@two_gpus
@probe
def stream_of_another_gpu(torch):
    """A block waits for a stream of the other GPU that it was recorded on."""
    far, near = torch.cuda.Stream("cuda:1"), torch.cuda.Stream("cuda:0")
    x = torch.ones(64 << 20, dtype=torch.uint8, device="cuda:0")
    y = torch.empty_like(x, device="cuda:1")
    y.copy_(x)
    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
    with torch.cuda.stream(near), torch.cuda.stream(far):  # the copy is near's, and each waits for the other
        torch.cuda._sleep(400_000_000)
        y.copy_(x)
    x.record_stream(far)
    address = x.data_ptr()
    del x
    others = [torch.zeros(64 << 20, dtype=torch.uint8, device="cuda:0") for _ in range(8)]
    assert address not in [o.data_ptr() for o in others] or far.query(), "the block was given out while GPU 1 reads it"
    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
    assert y.eq(1).all().item(), "GPU 1 read what came later"
    return "the block waits for it"


@two_gpus
@probe
def graph_on_second_gpu(torch):
    with torch.cuda.device(1):
        w = torch.randn(512, 512, device="cuda")
        x = torch.randn(64, 512, device="cuda")
        w @ w
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            out = (x @ w).relu() @ w
        x.normal_()
        g.replay()
        assert torch.equal(out, (x @ w).relu() @ w)
        del g, out
    return "captured and replayed on GPU 1"


@two_gpus
@cupool_only
def sleep_with_peers(torch):
    """What wakes at its addresses is reached by the other GPU again."""
    import cupool.torch
    with cupool.torch.tag("weights"):
        x = torch.randn(4000, 4000, device="cuda:0")
    y = torch.empty(4000, 4000, device="cuda:1")
    _agree(torch, x, y)
    held = torch.cuda.memory_reserved(0)
    cupool.torch.sleep("weights")
    assert torch.cuda.memory_reserved(0) < held
    cupool.torch.wake("weights")
    _agree(torch, x, y)
    return "the same addresses, and GPU 1 reads them"


@two_gpus
@probe
def threads_on_two_gpus(torch):
    """Threads work on both GPUs, and free what others allocated."""
    import queue
    import threading
    passed, failed = queue.Queue(maxsize=64), []

    def work(k):
        try:
            device = f"cuda:{k % 2}"
            with torch.cuda.stream(torch.cuda.Stream(device)):
                for i in range(300):
                    x = torch.full(((i * 7919 + k) % 200_000 + 1,), k, device=device)
                    assert x.eq(k).all().item()
                    passed.put(x)
                    x = passed.get()
                    del x
        except BaseException as err:  # a thread's own goes nowhere
            failed.append(err)

    ts = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    assert not failed, failed[0]
    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
    assert [torch.cuda.memory_allocated(d) for d in (0, 1)] == [0, 0]
    return "8 threads"


# ------------------------------------------------------------------ all

def run_one(name, mode):
    global MODE
    MODE = mode
    choose.use(mode)
    import torch
    try:
        state, text = "ok", PROBES[name](torch)
    except Beyond as err:
        state, text = "beyond", err
    print(f"PROBE {name} {state} {text}", flush=True)


def run_all(mode, jobs):
    import torch
    few = torch.cuda.device_count() < 2
    names = [n for n in PROBES if (mode == "cupool" or n not in ONLY_CUPOOL) and n != "ipc_to_cupool"
             and not (few and n in TWO_GPUS)]
    here = os.path.abspath(__file__)

    def job(name):
        try:
            done = subprocess.run([sys.executable, "-X", "faulthandler", here, name, mode], capture_output=True, text=True,
                                  timeout=240)
        except subprocess.TimeoutExpired as err:
            return name, "TIME", "more than 240 s", str(err.stdout) + str(err.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("PROBE ")]
        if done.returncode == 0 and lines:
            return name, *lines[-1].split(" ", 3)[2:], done.stdout
        errors = done.stderr.strip().splitlines() or ["no output"]
        last = next((line for line in errors if done.returncode < 0 and line.startswith("  File ")), errors[-1])
        return name, "FAILS", f"status {done.returncode}: {last.strip()[:150]}", done.stdout + done.stderr

    states = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        together = pool.map(job, [n for n in names if n not in ALONE])
        for name, state, text, output in itertools.chain(together, map(job, [n for n in names if n in ALONE])):
            states.append(state)
            print(f"{name:26} {state:6} {text}", flush=True)
            if state in ("FAILS", "TIME") and os.environ.get("LOGS"):
                with open(f"{os.environ['LOGS']}/{mode}-{name}.txt", "w") as f:
                    f.write(output)
    print(f"{mode}: {states.count('ok')} of {len(names)} probes passed, {states.count('beyond')} are beyond PyTorch",
          flush=True)
    return states.count("FAILS") + states.count("TIME")


MODE = "default"

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if sys.argv[1] == "all":
        sys.exit(1 if run_all(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 6) else 0)
    run_one(sys.argv[1], sys.argv[2])
