"""Runs a file of PyTorch's tests with pytest, with an allocator put in place before: run_test.py ALLOCATOR FILE [PYTEST...].
The file's directory is where its helpers are. Children that the tests start by their own code run PyTorch's."""

import os
import sys

import choose

allocator, file, arguments = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:]
choose.use(allocator)
sys.path[:0] = [os.path.dirname(file)]
sys.argv = [file, *arguments]

import pytest

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", "--tb=short", "-rfE", file, *arguments]))
