"""A server that captures one CUDA graph for each of 32 batch sizes into one shared pool, and runs them in any order
beside eager work. Prints a line of JSON: what is reserved after the captures and at the end, in MiB, the seconds of
captures and of steps, and a digest of the results.

usage: serving.py down|up default|expandable|cupool     from the largest batch to the smallest, or the other way
"""

import hashlib
import json
import random
import sys
import time

import choose

choose.use(sys.argv[2])

import torch

WIDE, LAYERS, STEPS = 2048, 12, 400
SIZES = [1, 2, 4] + list(range(8, 8 * 30, 8))  # 32


def main():
    order = sorted(SIZES, reverse=sys.argv[1] == "down")
    torch.manual_seed(0)
    rng = random.Random(0)
    weights = [(torch.randn(WIDE, 4 * WIDE, device="cuda", dtype=torch.half) / 45,
                torch.randn(4 * WIDE, WIDE, device="cuda", dtype=torch.half) / 90) for _ in range(LAYERS)]
    table = torch.randn(32000, WIDE, device="cuda", dtype=torch.half)

    def model(x):
        for w1, w2 in weights:
            x = x + torch.nn.functional.gelu(x @ w1) @ w2
        return x @ table.T

    words = 16
    inputs = {n: torch.zeros(n * words, WIDE, device="cuda", dtype=torch.half) for n in SIZES}
    with torch.no_grad():
        model(inputs[order[0]])
        torch.cuda.synchronize()
        pool, graphs, outputs = torch.cuda.graph_pool_handle(), {}, {}
        started = time.time()
        for n in order:
            graphs[n] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graphs[n], pool=pool):
                outputs[n] = model(inputs[n])
        torch.cuda.synchronize()
        captured = time.time() - started
        after = torch.cuda.memory_reserved()

        digest, live = hashlib.sha256(), []
        started = time.time()
        for step in range(STEPS):
            n = rng.choice(SIZES)
            inputs[n].normal_(generator=None)
            graphs[n].replay()
            best = outputs[n].argmax(1)
            # Eager work beside: caches of requests that come and go.
            live.append(torch.full((rng.randint(1, 64) << 16,), step, device="cuda"))
            if len(live) > 60:
                live.pop(rng.randrange(len(live)))
            if step % 50 == 0:
                digest.update(best.cpu().numpy().tobytes())
                # A graph gives what the same work gives when it is not captured.
                assert torch.equal(best, model(inputs[n]).argmax(1)), f"a graph of {n} went wrong"
        torch.cuda.synchronize()
        seconds = time.time() - started
    stats = torch.cuda.memory_stats()
    print(json.dumps(dict(
        name="serving " + sys.argv[1], allocator=sys.argv[2], captured=after >> 20,
        requested=stats["requested_bytes.all.peak"] >> 20, active=stats["active_bytes.all.peak"] >> 20,
        reserved=stats["reserved_bytes.all.peak"] >> 20, capture_seconds=round(captured, 2),
        seconds=round(seconds, 2), digest=digest.hexdigest()[:16])), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("down", "up"):
        sys.exit(__doc__)
    main()
