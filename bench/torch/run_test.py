"""Runs a file of PyTorch's tests with pytest, with an allocator put in place before: run_test.py ALLOCATOR FILE PART/PARTS [PYTEST...].
Of its tests those of one part run, every PARTS-th, from PART on, which counts from 0.
The file's directory and the one above it are where its helpers are. A child that a test spawns imports this file, too, and gets the
same allocator."""

import os
import sys

import choose

if __name__ == "__main__":
    os.environ["RUN_TEST_ALLOCATOR"], file = sys.argv[1], os.path.abspath(sys.argv[2])
choose.use(os.environ["RUN_TEST_ALLOCATOR"])

if __name__ == "__main__":
    import pytest

    class Part:
        def __init__(self, of):
            self.first, self.step = map(int, of.split("/"))

        def pytest_collection_modifyitems(self, items):
            items[:] = items[self.first::self.step]

    part, arguments = Part(sys.argv[3]), sys.argv[4:]
    sys.argv = [file, *arguments]
    sys.path[:0] = [os.path.dirname(file), os.path.dirname(os.path.dirname(file))]
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", "--tb=short", "-rfE", file, *arguments], [part]))
