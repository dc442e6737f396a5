"""Trains on batches of many sizes and prints what was reserved: python train.py, or python -m cupool.torch train.py."""

import random

import torch

torch.manual_seed(0)
random.seed(0)
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(200):
    x = torch.randn(random.randint(64, 16384), 1024, device="cuda")
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 50 == 49:
        print(f"step {step + 1}: loss {loss.item():.4f}")

stats = torch.cuda.memory_stats()
active, reserved = (stats[f"{key}_bytes.all.peak"] / 2**20 for key in ("active", "reserved"))
print(f"{torch.cuda.memory.get_allocator_backend()}: {active:.0f} MiB active, {reserved:.0f} MiB reserved")
