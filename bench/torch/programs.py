"""Whole PyTorch programs under an allocator. Prints a line of JSON: seconds, the peaks of what was requested, active
(with what waits for other streams) and reserved, in MiB, and a digest of the results, which is the same to the bit
for the same program where it is deterministic.

usage: programs.py NAME default|expandable|cupool
SEED=n changes sizes and numbers. EXACT=1 takes deterministic algorithms, for the digests; it is slower.
"""

import hashlib
import json
import os
import random
import sys
import time

import choose

if os.environ.get("EXACT"):
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
choose.use(sys.argv[2])

import torch

SEED = int(os.environ.get("SEED", "0"))
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def bits(*values):
    """A digest of tensors and modules, to the bit."""
    digest = hashlib.sha256()
    for value in values:
        for t in (value.parameters() if isinstance(value, torch.nn.Module) else [value]):
            digest.update(t.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def descend(optimizer, loss):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@program
def resnet50():
    import torchvision
    model = torchvision.models.resnet50().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(20):
        images, labels = torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (64,), device="cuda")
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        descend(optimizer, loss)
    return bits(loss, model)


@program
def gpt2():
    """Sentences of many lengths, as a language model is tuned."""
    from transformers import AutoModelForCausalLM, GPT2Config
    model = AutoModelForCausalLM.from_config(GPT2Config()).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(40):
        words = torch.randint(0, 50257, (random.randint(1, 8), random.randint(32, 1024)), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(words, labels=words).loss
        descend(optimizer, loss)
    return bits(loss, model)


@program
def prefetch():
    """Batches are made on a second stream."""
    side = torch.cuda.Stream()
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(12)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(120):
        with torch.cuda.stream(side):
            x = torch.randn(random.randint(64, 8192), 2048, device="cuda")
            y = x * 2
        main = torch.cuda.current_stream()
        main.wait_stream(side)
        x.record_stream(main)
        y.record_stream(main)
        loss = model(x).sub(y).pow(2).mean()
        descend(optimizer, loss)
        del x, y
    return bits(loss, model)


@program
def rl():
    """A replay buffer of episodes of many lengths."""
    import collections
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1),
                          nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 19)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    episodes = collections.deque(maxlen=60 + 15 * SEED)
    for _ in range(150):
        n = random.randint(16 + 40 * SEED, 400 + 100 * SEED)
        frames = torch.randint(0, 255, (n, 4, 84, 84), device="cuda", dtype=torch.uint8)
        with torch.no_grad():
            actions = model(frames.float() / 255).argmax(1)
        episodes.append((frames, actions, torch.randn(n, device="cuda")))
        for _ in range(3):
            chosen = random.sample(list(episodes), min(len(episodes), 4))
            x, y, r = (torch.cat([e[i] for e in chosen]) for i in range(3))
            loss = (nn.functional.cross_entropy(model(x.float() / 255), y, reduction="none") * r).mean()
            descend(optimizer, loss)
    return bits(loss, model)


@program
def serve():
    """Requests of many lengths: prompts on a second stream, caches that grow by a word a step."""
    wide, heads, layers = 1024, 16, 8

    def matrix(a, b, scale):
        return torch.randn(a, b, device="cuda", dtype=torch.half) / scale

    weights = [[matrix(wide, 3 * wide, 32), matrix(wide, wide, 32), matrix(wide, 4 * wide, 32),
                matrix(4 * wide, wide, 64)] for _ in range(layers)]
    prompts, requests, last = torch.cuda.Stream(), [], None

    def layer(w, x, cache):
        q, k, v = (x @ w[0]).view(1, -1, 3, heads, wide // heads).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + a.transpose(1, 2).reshape(1, -1, wide) @ w[1]
        return x + torch.nn.functional.gelu(x @ w[2]) @ w[3], (k, v)

    with torch.no_grad():
        for _ in range(90 if SEED else int(os.environ.get("STEPS", 220))):
            if len(requests) < 24 and random.random() < 0.5:
                with torch.cuda.stream(prompts):
                    x = torch.randn(1, random.randint(20, 3000 + 500 * SEED), wide, device="cuda", dtype=torch.half)
                    caches = []
                    for w in weights:
                        x, cache = layer(w, x, None)
                        caches.append(cache)
                    x = x[:, -1:].clone()
                main = torch.cuda.current_stream()
                main.wait_stream(prompts)
                for t in [x] + [t for c in caches for t in c]:
                    t.record_stream(main)
                requests.append([x, caches, random.randint(5, 120)])
            for request in requests:
                x = request[0]
                for i, w in enumerate(weights):
                    x, request[1][i] = layer(w, x, request[1][i])
                request[0], last = x, x
                request[2] -= 1
            requests = [r for r in requests if r[2] > 0]
    return bits(last)


@program
def fsdp():
    """A sharded training: weights are gathered on a second stream, gradients scattered there."""
    wide, layers, ranks = 2048, 14, 8
    size, bf = 8 * wide * wide, torch.bfloat16
    gelu, comm, main = torch.nn.functional.gelu, torch.cuda.Stream(), torch.cuda.current_stream()
    shards = [torch.randn(size // ranks, device="cuda") * 0.02 for _ in range(layers)]
    momenta = [torch.zeros(size // ranks, device="cuda") for _ in range(layers)]

    def gather(i):
        with torch.cuda.stream(comm):
            full = torch.empty(size, device="cuda", dtype=bf)
            full.view(ranks, -1).copy_(shards[i].expand(ranks, -1))
            done = torch.cuda.Event()
            done.record(comm)
        return full, done

    def use(gathered):
        full, done = gathered
        main.wait_event(done)
        full.record_stream(main)
        half = 4 * wide * wide
        return full[:half].view(wide, 4 * wide), full[half:].view(4 * wide, wide)

    with torch.no_grad():
        for _ in range(40):
            x = torch.randn(random.randint(1, 6) * random.randint(256, 2048 + 64 * SEED), wide, device="cuda", dtype=bf)
            inputs, coming = [], gather(0)
            for i in range(layers):
                present, coming = coming, gather(i + 1) if i + 1 < layers else None
                w1, w2 = use(present)
                inputs.append(x)
                x = x + gelu(x @ w1) @ w2
                del present, w1, w2
            g = torch.randn_like(x)
            coming = gather(layers - 1)
            del x
            for i in reversed(range(layers)):
                present, coming = coming, gather(i - 1) if i else None
                w1, w2 = use(present)
                a = inputs.pop()
                h = a @ w1
                k = gelu(h)
                d2, dk = k.T @ g, g @ w2.T
                dh = dk * (1 + (h > 0))
                d1, g = a.T @ dh, g + dh @ w1.T
                grads, done = torch.cat([d1.flatten(), d2.flatten()]), torch.cuda.Event()
                done.record(main)
                del present, w1, w2, a, h, k, dk, dh, d1, d2
                with torch.cuda.stream(comm):
                    comm.wait_event(done)
                    grads.record_stream(comm)
                    mean = grads.float().view(ranks, -1).mean(0)
                    momenta[i].mul_(0.9).add_(mean)
                    shards[i].sub_(momenta[i], alpha=1e-6)
                    del grads, mean
    torch.cuda.synchronize()
    return bits(*shards)


@program
def threads():
    """Four streams, on which models come and go."""
    import threading
    digests = {}

    def work(k):
        r, generator = random.Random(k + 100 * SEED), torch.Generator("cuda")
        generator.manual_seed(k)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for run in range(3):
                wide, deep = r.choice([512, 1024, 1536, 2048, 3072]), r.randint(4, 12)
                model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(wide, wide), torch.nn.GELU())
                                              for _ in range(deep)]).cuda()
                optimizer = torch.optim.AdamW(model.parameters())
                for _ in range(r.randint(20, 60)):
                    x = torch.randn(r.randint(256, 16384), wide, device="cuda", generator=generator)
                    loss = model(x).pow(2).mean()
                    descend(optimizer, loss)
                    del x
                stream.synchronize()
                digests[k, run] = loss.item()
                del model, optimizer, loss
    ts = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return "" # the weights' first values depend on the threads' order


@program
def trainer():
    """transformers' Trainer on a small BERT, unchanged."""
    import tempfile
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=6, hidden_size=512, intermediate_size=2048,
                                                     num_attention_heads=8))
    rows = [dict(input_ids=[random.randint(5, 30000) for _ in range(n)], attention_mask=[1] * n, labels=n % 2)
            for n in [random.randint(8, 256) for _ in range(600)]]

    def pad(batch):
        longest = max(len(r["input_ids"]) for r in batch)
        return {key: torch.tensor([r[key] + [0] * (longest - len(r[key])) for r in batch])
                for key in ("input_ids", "attention_mask")} | {"labels": torch.tensor([r["labels"] for r in batch])}

    with tempfile.TemporaryDirectory() as d:
        arguments = TrainingArguments(d, per_device_train_batch_size=16, num_train_epochs=2, report_to=[], bf16=True,
                                      save_strategy="no", disable_tqdm=True, seed=SEED)
        Trainer(model, arguments, train_dataset=rows, data_collator=pad).train()
    return bits(model)


@program
def accelerate():
    """accelerate with gradient accumulation, and evaluation in between."""
    from accelerate import Accelerator
    helper = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6)
    model, optimizer = helper.prepare(model, torch.optim.AdamW(model.parameters(), 1e-4))
    for i in range(120):
        x = torch.randn(random.randint(1, 16), random.randint(16, 512), 512, device=helper.device)
        with helper.accumulate(model):
            loss = model(x).pow(2).mean()
            helper.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if i % 30 == 29:
            with torch.no_grad():
                model(torch.randn(32, 256, 512, device=helper.device))
    return bits(loss)


@program
def lightning():
    """Lightning on batches of many sizes."""
    import logging
    import warnings
    import lightning as pl
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU())
                                             for _ in range(10)])

        def training_step(self, batch, _):
            return self.net(batch[0]).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-4)

    class Batches(torch.utils.data.IterableDataset):
        def __iter__(self):
            r = random.Random(SEED)
            for _ in range(150):
                yield (torch.randn(r.randint(64, 8192), 1024),)

    model = Model()
    pl.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
               enable_progress_bar=False, enable_model_summary=False).fit(
        model, torch.utils.data.DataLoader(Batches(), batch_size=None))
    return bits(model)


@program
def unet():
    """A diffusion model on images of many sizes, with a moving average of its weights."""
    nn = torch.nn

    def convolutions(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU(),
                             nn.Conv2d(b, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            pairs = [(64, 128), (128, 256), (256, 512)]
            self.first, self.last = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 3, 3, padding=1)
            self.down = nn.ModuleList([convolutions(a, b) for a, b in pairs])
            self.up = nn.ModuleList([convolutions(2 * b, a) for a, b in reversed(pairs)])

        def forward(self, x):
            x, kept = self.first(x), []
            for layer in self.down:
                x = layer(x)
                kept.append(x)
                x = nn.functional.avg_pool2d(x, 2)
            for layer in self.up:
                k = kept.pop()
                x = layer(torch.cat([nn.functional.interpolate(x, size=k.shape[-2:]), k], 1))
            return self.last(x)

    model = Net().cuda()
    averages = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(80):
        n = random.choice([64, 96, 128, 160, 192, 256])
        x = torch.randn(random.randint(2, 12), 3, n, n, device="cuda")
        noise = torch.randn_like(x)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x + noise), noise)
        descend(optimizer, loss)
        torch._foreach_lerp_(averages, [p.detach() for p in model.parameters()], 0.01)
    return bits(loss, model)


@program
def lstm():
    """Packed sequences of many lengths."""
    model, head = torch.nn.LSTM(512, 1024, 3, batch_first=True).cuda(), torch.nn.Linear(1024, 20000).cuda()
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 1e-3)
    for _ in range(60):
        lengths = [random.randint(5, 300) for _ in range(32)]
        x = torch.randn(32, max(lengths), 512, device="cuda")
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = model(packed)
        y = y.data
        loss = torch.nn.functional.cross_entropy(head(y), torch.randint(0, 20000, (len(y),), device="cuda"))
        descend(optimizer, loss)
    return bits(loss, model)


@program
def detect():
    """Images of any size, with boxes of any number."""
    import torchvision
    model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_fpn(weights=None, weights_backbone=None)
    model = model.cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(40):
        images, targets = [], []
        for _ in range(random.randint(2, 6)):
            h, w, n = random.randint(200, 900), random.randint(200, 900), random.randint(1, 30)
            images.append(torch.rand(3, h, w, device="cuda"))
            corners = torch.rand(n, 2, device="cuda") * torch.tensor([w / 2, h / 2], device="cuda")
            targets.append(dict(boxes=torch.cat([corners, corners + 20], 1),
                                labels=torch.randint(1, 90, (n,), device="cuda")))
        descend(optimizer, sum(model(images, targets).values()))
    return bits(model)


@program
def offload():
    """Activations are kept in the computer's memory, copied there and back on a second stream."""
    side, main, nn = torch.cuda.Stream(), torch.cuda.current_stream(), torch.nn

    def pack(t):
        if t.numel() < 1 << 18 or not t.is_cuda or isinstance(t, nn.Parameter):
            return t
        side.wait_stream(main)
        with torch.cuda.stream(side):
            kept = torch.empty(t.shape, dtype=t.dtype, pin_memory=True)
            kept.copy_(t, non_blocking=True)
            done = torch.cuda.Event()
            done.record(side)
        t.record_stream(side)
        return kept, done

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        kept, done = packed
        with torch.cuda.stream(side):
            side.wait_event(done)
            t = kept.to("cuda", non_blocking=True)
        main.wait_stream(side)
        t.record_stream(main)
        return t

    model = nn.Sequential(*[nn.Sequential(nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))
                            for _ in range(10)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(16):
        x = torch.randn(random.randint(1, 6) * 1024, 1024, device="cuda")
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = model(x).pow(2).mean()
        descend(optimizer, loss)
    return bits(loss, model)


@program
def pipeline():
    """Batches go through four stages, each on a stream of its own."""
    nn, main, last = torch.nn, torch.cuda.current_stream(), None
    streams = [torch.cuda.Stream() for _ in range(4)]
    stages = [nn.Sequential(*[nn.Sequential(nn.Linear(1536, 1536), nn.GELU()) for _ in range(3)]).cuda()
              for _ in range(4)]
    with torch.no_grad():
        for _ in range(150):
            batches = [torch.randn(random.randint(64, 4096), 1536, device="cuda") for _ in range(random.randint(2, 6))]
            means = []
            for x in batches:
                before = main
                for stream, stage in zip(streams, stages):
                    stream.wait_stream(before)
                    x.record_stream(stream)
                    with torch.cuda.stream(stream):
                        x = stage(x)
                    before = stream
                main.wait_stream(before)
                x.record_stream(main)
                means.append(x.mean(1))
            del batches, x
            last = torch.cat(means).sum()
    return bits(last)


@program
def small():
    """Small tensors that a second stream reads."""
    side, main, sums = torch.cuda.Stream(), torch.cuda.current_stream(), []
    for _ in range(800):
        tensors = [torch.randn(random.randint(100, 200000), device="cuda") for _ in range(20)]
        side.wait_stream(main)
        with torch.cuda.stream(side):
            sums.append(torch.stack([t.sum() for t in tensors]))
        for t in tensors:
            t.record_stream(side)
    torch.cuda.synchronize()
    return bits(*sums)


@program
def servers():
    """Eight threads, each with a stream, answer requests of any size."""
    import threading
    layer = torch.nn.TransformerEncoderLayer(2048, 16, 8192, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3).cuda().half().eval()

    def work(k):
        r = random.Random(k + 100 * SEED)
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            for _ in range(60):
                x = torch.randn(r.randint(1, 16), r.randint(16, 512), 2048, device="cuda", dtype=torch.half)
                model(x).sum().item()
    ts = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return "" # what is drawn depends on the threads' order


@program
def generate():
    """A language model answers prompts: greedy and by beams, its caches growing by a token."""
    from transformers import AutoModelForCausalLM, GPT2Config
    model = AutoModelForCausalLM.from_config(GPT2Config(n_layer=12, n_embd=1024, n_head=16)).cuda().half().eval()
    out = []
    for _ in range(8):
        x = torch.randint(0, 50000, (random.randint(1, 24), random.randint(20, 400)), device="cuda")
        y = model.generate(x, max_new_tokens=random.randint(20, 90), do_sample=False, num_beams=random.choice([1, 4]),
                           attention_mask=torch.ones_like(x), pad_token_id=50256, eos_token_id=None)
        out.append(y.float().sum())
    return bits(torch.stack(out))


@program
def nodes():
    """Message passing over graphs of any size."""
    wide = 256
    layers = torch.nn.ModuleList([torch.nn.Linear(2 * wide, wide) for _ in range(6)]).cuda()
    first, last = torch.nn.Linear(64, wide).cuda(), torch.nn.Linear(wide, 10).cuda()
    parameters = [p for m in (layers, first, last) for p in m.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-3)
    for _ in range(120):
        count = int(10 ** random.uniform(3, 4.8))
        edges = count * random.randint(2, 12)
        source, target = torch.randint(0, count, (2, edges), device="cuda")
        h = first(torch.randn(count, 64, device="cuda"))
        for layer in layers:
            m = torch.relu(layer(torch.cat([h[source], h[target]], 1)))
            h = h + torch.zeros_like(h).index_add(0, target, m)
            h = torch.nn.functional.layer_norm(h, (wide,))
        loss = torch.nn.functional.cross_entropy(last(h), torch.randint(0, 10, (count,), device="cuda"))
        descend(optimizer, loss)
    return bits(loss)


@program
def lora():
    """A large frozen model, recomputed layer by layer; small weights are trained on texts of any length."""
    from torch.utils.checkpoint import checkpoint
    wide, r = 2048, 16
    layers = torch.nn.ModuleList([torch.nn.TransformerEncoderLayer(wide, 16, 4 * wide, dropout=0, batch_first=True)
                                  for _ in range(12)]).cuda().bfloat16()
    layers.requires_grad_(False)
    down = torch.nn.ParameterList([torch.randn(wide, r, device="cuda") * 0.01 for _ in layers])
    up = torch.nn.ParameterList([torch.zeros(r, wide, device="cuda") for _ in layers])
    optimizer = torch.optim.AdamW([*down, *up], 1e-4)

    def block(layer, a, b, x):
        return layer(x) + (x.float() @ a @ b).bfloat16()
    for step in range(40):
        x = torch.randn(random.randint(1, 8), random.randint(32, 1500), wide, device="cuda", dtype=torch.bfloat16)
        y = x
        for layer, a, b in zip(layers, down, up):
            y = checkpoint(block, layer, a, b, y, use_reentrant=False)
        loss = (y.float() - x.float()).pow(2).mean() / 4
        loss.backward()
        if step % 4 == 3:
            torch.nn.utils.clip_grad_norm_([*down, *up], 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return bits(loss)


@program
def recommender():
    """Large tables whose gradients are sparse, with bags of any size."""
    tables = torch.nn.ModuleList([torch.nn.EmbeddingBag(int(10 ** random.uniform(4, 6.3)), 128, sparse=True)
                                  for _ in range(12)]).cuda()
    top = torch.nn.Sequential(torch.nn.Linear(128 * 13, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1)).cuda()
    dense = torch.nn.Sequential(torch.nn.Linear(13, 512), torch.nn.ReLU(), torch.nn.Linear(512, 128)).cuda()
    sparse = torch.optim.SparseAdam(list(tables.parameters()), 1e-3)
    optimizer = torch.optim.Adam([*top.parameters(), *dense.parameters()], 1e-3)
    for _ in range(80):
        n = random.randint(256, 16384)
        parts = [dense(torch.randn(n, 13, device="cuda"))]
        for t in tables:
            sizes = torch.randint(1, 20, (n,), device="cuda")
            offsets = sizes.cumsum(0) - sizes
            words = torch.randint(0, t.num_embeddings, (int(sizes.sum()),), device="cuda")
            parts.append(t(words, offsets))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(top(torch.cat(parts, 1)).squeeze(1),
                                                                    torch.rand(n, device="cuda"))
        loss.backward()
        for o in (sparse, optimizer):
            o.step()
            o.zero_grad(set_to_none=True)
    return bits(loss)


@program
def ppo():
    """Rollouts of small steps are kept, stacked, shuffled and learned from."""
    nn = torch.nn
    actor = nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 33)).cuda()
    optimizer = torch.optim.Adam(actor.parameters(), 3e-4)
    for _ in range(12):
        envs, states, actions, values = random.choice([64, 128, 256, 512]), [], [], []
        s = torch.randn(envs, 512, device="cuda")
        with torch.no_grad():
            for _ in range(random.randint(100, 300)):
                out = actor(s)
                a = torch.distributions.Categorical(logits=out[:, :32]).sample()
                states.append(s), actions.append(a), values.append(out[:, 32])
                s = torch.roll(s, 1, 1) + 0.01 * torch.randn_like(s)
        states, actions, values = torch.cat(states), torch.cat(actions), torch.cat(values)
        for _ in range(3):
            for part in torch.randperm(len(states), device="cuda").split(8192):
                out = actor(states[part])
                loss = nn.functional.cross_entropy(out[:, :32], actions[part]) + (out[:, 32] - values[part] - 1).pow(2).mean()
                descend(optimizer, loss)
    return bits(loss)


@program
def images():
    """A sampler of images of many sizes, each decoded at the end."""
    nn = torch.nn

    class Down(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.a, self.b = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, 2 * c, 3, 2, 1)
            self.n, self.q = nn.GroupNorm(8, c), nn.MultiheadAttention(2 * c, 8, batch_first=True)

        def forward(self, x):
            x = self.b(x + self.a(nn.functional.silu(self.n(x))))
            if x.shape[2] * x.shape[3] <= 1600:
                y = x.flatten(2).transpose(1, 2)
                x = x + self.q(y, y, y)[0].transpose(1, 2).reshape(x.shape)
            return x
    net = nn.Sequential(nn.Conv2d(4, 128, 3, padding=1), Down(128), Down(256), nn.ConvTranspose2d(512, 256, 2, 2), nn.SiLU(),
                        nn.ConvTranspose2d(256, 128, 2, 2), nn.Conv2d(128, 4, 3, padding=1)).cuda().half()
    decode = nn.Sequential(nn.ConvTranspose2d(4, 256, 2, 2), nn.SiLU(), nn.ConvTranspose2d(256, 128, 2, 2), nn.SiLU(),
                           nn.ConvTranspose2d(128, 64, 2, 2), nn.Conv2d(64, 3, 3, padding=1)).cuda().half()
    total = torch.zeros((), device="cuda")
    with torch.inference_mode():
        for _ in range(20):
            n, h, w = random.randint(1, 8), 8 * random.randint(6, 20), 8 * random.randint(6, 20)
            x = torch.randn(n, 4, h, w, device="cuda", dtype=torch.half)
            for _ in range(random.randint(5, 15)):
                both = net(torch.cat([x, x]))
                x = 0.99 * x - 0.01 * (both[:n] * 1.5 - both[n:] * 0.5)
            picture = decode(x).clamp(0, 1)
            total += picture.float().mean()
    return bits(total)


@program
def speech():
    """Recordings of any length, sorted into batches by seconds, with CTC."""
    nn, wide = torch.nn, 512
    front = nn.Sequential(nn.Conv1d(80, wide, 3, 2, 1), nn.GELU(), nn.Conv1d(wide, wide, 3, 2, 1)).cuda()
    layer = nn.TransformerEncoderLayer(wide, 8, 2048, batch_first=True, dropout=0.1)
    body = nn.TransformerEncoder(layer, 10, enable_nested_tensor=False).cuda()
    mix = nn.ModuleList([nn.Conv1d(wide, wide, 31, padding=15, groups=wide) for _ in range(4)]).cuda()
    head = nn.Linear(wide, 1000).cuda()
    parameters = [p for m in (front, body, mix, head) for p in m.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-4)
    for step in range(50):
        longest = random.randint(100, 3000)
        n = max(1, 24000 // longest)
        sound = torch.randn(n, 80, longest, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x = front(sound)
            for m in mix:
                x = x + m(x)
            x = body(x.transpose(1, 2))
            y = head(x).float().log_softmax(-1).transpose(0, 1)
        words = torch.randint(1, 1000, (n, 20), device="cuda")
        lengths = [torch.full((n,), k) for k in (len(y), min(20, len(y) // 2))]
        loss = nn.functional.ctc_loss(y, words, *lengths, zero_infinity=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 9:
            with torch.no_grad():
                body.eval()
                body(torch.randn(2, 2000, wide, device="cuda"))
                body.train()
    return bits(loss)


@program
def models():
    """Models of many sizes come, answer and go, as on a server of many."""
    kept, total = {}, torch.zeros((), device="cuda")
    with torch.no_grad():
        for _ in range(60):
            k = random.randint(0, 15)
            wide = 256 * (1 + k // 2)
            if k not in kept:
                if len(kept) >= 4:
                    del kept[random.choice(list(kept))]
                with torch.device("cuda"):
                    layer = torch.nn.TransformerEncoderLayer(wide, 8, 4 * wide, batch_first=True)
                    kept[k] = torch.nn.TransformerEncoder(layer, 2 + k % 5, enable_nested_tensor=False).half().eval()
            model = kept[k]
            for _ in range(10):
                x = torch.randn(random.randint(1, 16), random.randint(8, 700), wide, device="cuda", dtype=torch.half)
                total += model(x).float().mean()
    return bits(total)


@program
def compiled():
    """torch.compile with sizes that change."""
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, dropout=0)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    run = torch.compile(model, dynamic=True)
    for _ in range(40):
        x = torch.randn(random.randint(2, 16), random.randint(33, 700), 768, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = (run(x).float() - x).pow(2).mean()
        descend(optimizer, loss)
    return bits(loss)


@program
def clouds():
    """Point clouds: neighbours by distance, sorts, uniques and scatters."""
    net = torch.nn.Sequential(torch.nn.Linear(6, 128), torch.nn.ReLU(), torch.nn.Linear(128, 256)).cuda()
    head = torch.nn.Linear(256, 20).cuda()
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], 1e-3)
    for _ in range(60):
        n = random.randint(2000, 24000)
        points = torch.rand(n, 3, device="cuda")
        near = torch.cat([torch.cdist(part, points).topk(16, largest=False).indices for part in points.split(4096)])
        edge = torch.cat([points[near], points[near] - points[:, None]], -1)
        h = net(edge).amax(1)
        voxel, where = torch.unique((points * random.randint(4, 24)).long(), dim=0, return_inverse=True)
        h = torch.zeros(len(voxel), 256, device="cuda").index_add(0, where, h)
        loss = torch.nn.functional.cross_entropy(head(h), torch.randint(0, 20, (len(voxel),), device="cuda"))
        descend(optimizer, loss)
    return bits(loss)


@program
def calls():
    """A server that calls a model in CUDA graphs beside eager work on other streams, with copies to and from the host."""
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda().half()
    main, up, down = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    graphs = {}
    with torch.no_grad():
        for n in (1, 8, 64, 256):
            x = torch.zeros(n, 2048, device="cuda", dtype=torch.half)
            model(x)
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):
                y = model(x)
            graphs[n] = g, x, y
        kept = []
        for _ in range(1500):
            n = random.choice(list(graphs)) if random.random() < 0.6 else random.randint(1, 9000)
            host = torch.ones(n, 2048, dtype=torch.half).pin_memory()
            with torch.cuda.stream(up):
                x = host.to("cuda", non_blocking=True)
            main.wait_stream(up)
            x.record_stream(main)
            if n in graphs:
                graphs[n][1].copy_(x)
                graphs[n][0].replay()
                y = graphs[n][2].clone()
            else:
                y = model(x)
            down.wait_stream(main)
            with torch.cuda.stream(down):
                out = y.to("cpu", non_blocking=True)
            y.record_stream(down)
            kept.append(out)
            if len(kept) > 20:
                kept.pop(0)
            del x, y
    return ""


def main():
    torch.manual_seed(SEED)
    random.seed(SEED)
    if os.environ.get("EXACT"):
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
    torch.cuda.init()
    started = time.time()
    digest = PROGRAMS[sys.argv[1]]()
    torch.cuda.synchronize()
    seconds = time.time() - started
    stats = torch.cuda.memory_stats()
    peaks = {key: round(stats[key + "_bytes.all.peak"] / 2**20) for key in ("requested", "active", "reserved")}
    print(json.dumps(dict(name=sys.argv[1], allocator=sys.argv[2], seconds=round(seconds, 1), **peaks, digest=digest)),
          flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in PROGRAMS:
        sys.exit(f"{__doc__}\nNAME: {', '.join(PROGRAMS)}")
    main()
