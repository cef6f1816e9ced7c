"""A listing of code that Triton compiled before, from another file with the same text."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from gpu_utils.compiler import listing

KERNEL = """import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, 2 * x, mask=offsets < n)
"""


def kernel_from(path):
    path.write_text(KERNEL)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.double_kernel


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_copy_of_a_kernel_in_another_file_still_has_its_lines(tmp_path, monkeypatch, target):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("first", "second"):
        kernel = kernel_from(tmp_path / f"{name}.py")
        found = listing(kernel, target, args=(torch.float32, torch.float32, 1024, 256))
        load = next(number for number, text in found.source if "tl.load" in text)
        assert any("load" in i.text or "ld." in i.text for i in found.columns[0].of_line(load)), name
