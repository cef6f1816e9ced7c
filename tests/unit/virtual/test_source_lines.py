"""Errors quote the learner's line, also for a kernel that an earlier notebook compiled."""

from __future__ import annotations

import importlib.util
import linecache

import pytest
import torch

from gpu_utils import virtual_gpu
from gpu_utils.errors import OutOfBounds

SOURCE = """
import triton
import triton.language as tl


@triton.jit
def maskless_kernel(out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, offsets)
"""


def maskless(path):
    """The kernel of SOURCE from a file of its own, as each run of a notebook has its own for a cell."""
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.maskless_kernel


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_kernel_from_the_cache_of_another_run_is_quoted_too(target, tmp_path):
    for run in ("first", "second"):
        path = tmp_path / f"{run}.py"
        kernel = maskless(path)
        with pytest.raises(OutOfBounds) as raised, virtual_gpu(target):
            kernel[(3,)](torch.zeros(10, dtype=torch.int32), BLOCK=4)
        assert "py:9: tl.store(out_ptr + offsets, offsets))" in str(raised.value)
        path.unlink()
        linecache.clearcache()
    assert "first.py:9" in str(raised.value)  # the name stays that of the run that compiled it
