"""Loops that never end, and the lines that messages quote."""

import linecache

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.errors import OutOfBounds, StepLimit
from gpu_utils.virtual import virtual_gpu

TARGETS = ("sm_90", "gfx942", "gfx1100")


@triton.jit
def wait_kernel(flag):
    while tl.atomic_add(flag, 0) == 0:  # nobody sets it
        pass


@triton.jit(do_not_specialize=["n", "by"])
def outer_kernel(x, n, by):
    at = 0
    while at < n:  # the outer loop
        total = 0.0
        for i in range(n):
            total += tl.load(x + i)
        tl.store(x, total * 0 + 1)
        at += by


@triton.jit
def past_kernel(x):
    tl.store(x + tl.arange(0, 64), 1.0)  # past the end


def line_of(kernel, text):
    lines, first = kernel.raw_src, kernel.starting_line_number
    return first + next(i for i, line in enumerate(lines) if text in line)


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_that_waits_for_ever_is_named_with_its_line(target):
    flag = torch.zeros(1, dtype=torch.int32)
    line = line_of(wait_kernel, "while tl.atomic_add")
    said = rf"loop \(test_step_limit\.py:{line}: while tl\.atomic_add.* went round 200 times in program \(0, 0, 0\)"
    with virtual_gpu(target, step_limit=200), pytest.raises(StepLimit, match=said):
        wait_kernel[(2,)](flag)


@pytest.mark.parametrize("target", TARGETS)
def test_the_loop_that_does_not_end_is_named_and_not_the_one_inside_of_it(target):
    x = torch.ones(64)
    line = line_of(outer_kernel, "# the outer loop")
    with virtual_gpu(target, step_limit=100):
        outer_kernel[(1,)](x, 20, by=1)
        with pytest.raises(StepLimit, match=rf"the loop \(test_step_limit\.py:{line}: while at < n"):
            outer_kernel[(1,)](x, 20, by=0)


def test_without_a_limit_a_long_loop_ends():
    x = torch.ones(1000)
    with virtual_gpu("gfx942"):
        outer_kernel[(1,)](x, 1000, by=1000)
    with virtual_gpu("gfx942", step_limit=500), pytest.raises(StepLimit):
        outer_kernel[(1,)](x, 1000, by=1000)


@pytest.mark.parametrize("target", TARGETS)
def test_an_error_quotes_the_line_of_the_kernel(target):
    line = line_of(past_kernel, "past the end")
    said = rf"past_kernel \(test_step_limit\.py:{line}: tl\.store\(x \+ tl\.arange\(0, 64\), 1\.0\)  # past the end\):"
    with virtual_gpu(target), pytest.raises(OutOfBounds, match=said):
        past_kernel[(1,)](torch.zeros(32))


def test_a_line_of_a_notebook_cell_is_quoted_too(monkeypatch):
    source = "\n".join(
        [
            "import triton, triton.language as tl",
            "@triton.jit",
            "def cell_kernel(x):",
            "    tl.store(x + 4096, 1.0)",
            "",
        ]
    )
    name = "/tmp/ipykernel_1/123456.py"  # IPython gives Python the text of a cell under such a name
    monkeypatch.setitem(linecache.cache, name, (len(source), None, source.splitlines(True), name))
    cell = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), cell)
    with virtual_gpu("gfx942"), pytest.raises(OutOfBounds, match=r"\(123456\.py:4: tl\.store\(x \+ 4096, 1\.0\)\)"):
        cell["cell_kernel"][(1,)](torch.zeros(32))
