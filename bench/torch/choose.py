"""Which allocator a program runs with: use(NAME) before CUDA is used. default and expandable are PyTorch's own."""

import os
import pathlib
import sys

NAMES = ("default", "expandable", "cupool")


def use(name):
    if name not in NAMES:
        sys.exit(f"the allocator {name!r} is none of {', '.join(NAMES)}")
    if name == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if name == "cupool":
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
        import cupool.torch

        cupool.torch.install(fallback=False)
