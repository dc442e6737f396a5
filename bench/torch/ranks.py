"""Whole PyTorch programs on several GPUs under an allocator, a process for each GPU. Prints a line of JSON as programs.py does,
with the peaks of the rank that reserved most. Seconds are of the steps after the first five, which make what PyTorch and NCCL
make once.

usage: ranks.py NAME default|expandable|cupool
SEED=n changes sizes and numbers. EXACT=1 takes deterministic algorithms, for the digests; it is slower. RANKS=n takes n GPUs.
"""

import json
import os
import random
import socket
import subprocess
import sys
import time

import choose

NAME, ALLOCATOR = sys.argv[1:3] if len(sys.argv) == 3 else ("", "default")
SEED = int(os.environ.get("SEED", "0"))
PROGRAMS = {}

# NVLink's multicast can put the GPUs of a computer out of service for others who share them.
os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1")
if os.environ.get("EXACT"):
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
if NAME == "hook":
    os.environ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"] = "1"
if "RANK" in os.environ:
    choose.use(ALLOCATOR)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def program(function):
    PROGRAMS[function.__name__] = function
    return function


started = 0.0


def steps(count):
    """Counts steps, and has the time begin after the first five."""
    global started
    for i in range(count):
        if i == 5:
            torch.cuda.synchronize()
            dist.barrier()
            started = time.time()
        yield i


def summed(value):
    """The sum of all ranks' values."""
    dist.all_reduce(value)
    return value


def encoder(wide, heads, layers):
    layer = torch.nn.TransformerEncoderLayer(wide, heads, 4 * wide, dropout=0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()


def train(model, wide, count, longest, autocast=True):
    """Steps on batches of any size, the same on each rank. Returns the sum of the ranks' last losses."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in steps(count):
        x = torch.randn(random.randint(1, 8), random.randint(16, longest), wide, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            loss = (model(x).float() - x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return summed(loss.detach())


@program
def ddp():
    """Gradients in buckets."""
    model = torch.nn.parallel.DistributedDataParallel(encoder(1024, 16, 12))
    return train(model, 1024, 40, 1024)


@program
def hook():
    """ddp whose memory is registered with NCCL, all of it."""
    return ddp()


@program
def sharded():
    """fully_shard of each layer, weights gathered as bfloat16."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    model = encoder(2048, 16, 12)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in [*model.layers, model]:
        fully_shard(layer, mp_policy=policy)
    return train(model, 2048, 40, 1024, autocast=False)


@program
def sharded_before():
    """The older FullyShardedDataParallel, which records streams."""
    import functools
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={torch.nn.TransformerEncoderLayer})
    half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16)
    model = FullyShardedDataParallel(encoder(2048, 16, 12), auto_wrap_policy=wrap, mixed_precision=half,
                                     device_id=torch.cuda.current_device())
    return train(model, 2048, 40, 1024, autocast=False)


@program
def experts():
    """Each token goes to the rank of its expert and back: sizes differ at every step, and so does what a rank receives."""
    from torch.distributed.nn.functional import all_to_all_single
    ranks, wide = dist.get_world_size(), 2048
    expert = torch.nn.Sequential(torch.nn.Linear(wide, 4 * wide), torch.nn.GELU(), torch.nn.Linear(4 * wide, wide)).cuda()
    router = torch.nn.Linear(wide, ranks).cuda()
    optimizer = torch.optim.AdamW([*expert.parameters(), *router.parameters()], 1e-4)
    for _ in steps(60):
        x = torch.randn(random.randint(500, 16000), wide, device="cuda")
        weight, to = router(x).softmax(1).max(1)
        order = to.argsort(stable=True)
        sent = torch.bincount(to, minlength=ranks)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        sent, received = sent.tolist(), received.tolist()
        mine = all_to_all_single(x.new_empty(sum(received), wide), x[order], received, sent)
        back = all_to_all_single(x.new_empty(len(x), wide), expert(mine), sent, received)
        loss = (back * weight[order, None] - x[order]).pow(2).mean()
        loss.backward()
        for p in router.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return summed(loss.detach())


@program
def tensors():
    """Layers whose weights lie in parts on all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    wide = 2048
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(*[torch.nn.Sequential(
        torch.nn.Linear(wide, 4 * wide), torch.nn.GELU(), torch.nn.Linear(4 * wide, wide)) for _ in range(8)]).cuda()
    for block in model:
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(model, wide, 40, 1024)


@program
def stages():
    """A pipeline: each rank has some layers, and sends activations on."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    rank, ranks, wide = dist.get_rank(), dist.get_world_size(), 2048
    assert ranks > 1, "it takes two GPUs"
    part = encoder(wide, 16, 4)
    stage = PipelineStage(part, rank, ranks, torch.device("cuda", torch.cuda.current_device()))
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=lambda y, want: (y - want).pow(2).mean())
    optimizer, losses = torch.optim.AdamW(part.parameters(), 1e-4), []
    for _ in steps(30):
        x, losses = torch.randn(16, 256, wide, device="cuda"), []
        if rank == 0:
            schedule.step(x)
        elif rank == ranks - 1:
            schedule.step(target=x, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return summed(torch.stack(losses).mean().detach() if losses else torch.zeros((), device="cuda"))


@program
def buffers():
    """Memory of NCCL's own, in a MemPool that is registered with it."""
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(32 << 20, device="cuda")
    backend.register_mem_pool(pool)
    for _ in steps(20):
        dist.all_reduce(x, dist.ReduceOp.AVG)
        x += dist.get_rank()
    more = torch.ones(8 << 20, device="cuda")
    dist.all_reduce(more)
    torch.cuda.synchronize()
    backend.deregister_mem_pool(pool)
    result = x.sum() + more.sum()
    del x, pool
    return summed(result)


@program
def symmetric():
    """Symmetric memory, which PyTorch allocates past its allocator, beside ours."""
    import torch.distributed._symmetric_memory as memory
    group = dist.group.WORLD.group_name
    x = memory.empty(1 << 20, device=torch.device("cuda", torch.cuda.current_device()))
    x.fill_(dist.get_rank() + 1)
    memory.rendezvous(x, group)
    for _ in steps(20):
        y = torch.ops.symm_mem.one_shot_all_reduce(x, "sum", group)
        z = torch.randn(random.randint(1, 8 << 20), device="cuda") + y[0]
    torch.cuda.synchronize()
    assert y.eq(sum(range(1, dist.get_world_size() + 1))).all().item() and z.isfinite().all()
    return y.sum()


def rank():
    gpu = int(os.environ["RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", device_id=torch.device("cuda", gpu))
    torch.manual_seed(SEED)
    random.seed(SEED)
    if os.environ.get("EXACT"):
        torch.use_deterministic_algorithms(True, warn_only=True)
    result = PROGRAMS[NAME]()
    torch.cuda.synchronize()
    dist.barrier()
    seconds = time.time() - started
    stats, keys = torch.cuda.memory_stats(), ("requested", "active", "reserved")
    peaks = [stats[key + "_bytes.all.peak"] for key in keys] + [stats["num_device_alloc"]]
    peaks = torch.tensor(peaks, device="cuda", dtype=torch.int64)
    of_all = [torch.empty_like(peaks) for _ in range(dist.get_world_size())]
    dist.all_gather(of_all, peaks)
    most = max((p.tolist() for p in of_all), key=lambda p: p[2])
    if gpu == 0:
        mebibytes = {key: round(n / 2**20) for key, n in zip(keys, most)}
        print(json.dumps(dict(name=NAME, allocator=ALLOCATOR, seconds=round(seconds, 1), **mebibytes,
                              driver_allocs=most[3], digest=result.double().item().hex() if os.environ.get("EXACT") else "")),
              flush=True)
    dist.destroy_process_group()


def main():
    ranks = int(os.environ.get("RANKS", torch.cuda.device_count()))
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    environment = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="localhost", MASTER_PORT=str(port))
    children = [subprocess.Popen([sys.executable, *sys.argv], env=dict(environment, RANK=str(i), LOCAL_RANK=str(i)))
                for i in range(ranks)]
    # One that fails leaves the others waiting for it.
    while any(c.poll() is None for c in children) and not any(c.poll() for c in children):
        time.sleep(0.1)
    for c in children:
        if c.poll() is None:
            c.kill()
    sys.exit(max(abs(c.wait()) for c in children))


if __name__ == "__main__":
    if NAME not in PROGRAMS:
        sys.exit(f"{__doc__}\nNAME: {', '.join(PROGRAMS)}")
    rank() if "RANK" in os.environ else main()
