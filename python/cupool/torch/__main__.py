"""python -m cupool.torch [--settings KEY:VALUE,...] train.py ARGS

Runs a program, or with -m a module, with cupool as PyTorch's allocator. The program is not changed. Its children that
are started anew, as by torchrun, run PyTorch's own allocator unless they are started this way, too.
"""

import runpy
import sys


def main():
    arguments = sys.argv[1:]
    settings = None
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        sys.exit()
    if arguments[:1] == ["--settings"]:
        settings, arguments = "".join(arguments[1:2]), arguments[2:]
    if not arguments:
        sys.exit("usage: " + __doc__.strip())
    if arguments[0].startswith("-") and arguments[0] != "-m":
        sys.exit(f"cupool: {arguments[0]} is no option: -h lists them")

    import cupool.torch

    try:
        cupool.torch.install(settings)
    except cupool.torch.InstallError as err:
        sys.exit(f"cupool: {err}")
    if arguments[0] == "-m":
        if len(arguments) < 2:
            sys.exit("cupool: -m needs the name of a module")
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        # As python does for a program: its modules are where it lies, and not in the directory that -m looks in.
        import os

        if sys.path[0] == os.getcwd():
            del sys.path[0]
        sys.path.insert(0, os.path.dirname(os.path.realpath(arguments[0])))
        runpy.run_path(arguments[0], run_name="__main__")


main()
