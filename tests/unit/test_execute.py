"""What an answer is given: copies of the inputs, as they were."""

from __future__ import annotations

import linecache
import re

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.grading.execute import Attempt, _explain, quote_kernel_line
from gpu_utils.grading.plain import copy_of
from gpu_utils.virtual import virtual_gpu


@triton.jit
def misspelt_kernel(x):
    tl.store(x + tl.arrange(0, 64), 1.0)


VIEWS = {
    "contiguous": torch.arange(12.0).view(3, 4),
    "transposed": torch.arange(12.0).view(4, 3).T,
    "part of a wider matrix": torch.arange(30.0).view(3, 10)[:, 2:6],
    "every second column": torch.arange(24.0).view(3, 8)[:, ::2],
    "one row repeated": torch.arange(4.0).expand(3, 4),
    "empty": torch.empty(0, 4),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_copy_keeps_shape_strides_and_values_and_shares_no_memory(name):
    view = VIEWS[name]
    moved = copy_of(view, "cpu")
    assert moved.stride() == view.stride()
    assert torch.equal(moved, view)
    if view.numel():
        assert moved.untyped_storage().data_ptr() != view.untyped_storage().data_ptr()


def test_a_place_in_a_cell_is_quoted_as_its_line():
    linecache.cache["/tmp/cells/1234.py"] = (20, None, ["a = 1\n", "b = load(a)\n"], "/tmp/cells/1234.py")
    sentence, quoted = quote_kernel_line("kernel k (1234.py:2): lane 3 reads past x")
    assert quoted
    assert sentence == "kernel k (line 2: b = load(a)): lane 3 reads past x"


def test_a_place_whose_text_is_not_known_stays_as_it_is():
    assert quote_kernel_line("kernel k (nowhere.py:2): lane 3") == ("kernel k (nowhere.py:2): lane 3", False)


def test_an_error_of_tritons_compiler_quotes_the_line_of_the_kernel_and_not_the_launch():
    attempt = Attempt()
    linecache.getlines(__file__)  # a cell of a notebook is always known there
    with virtual_gpu("gfx942"), pytest.raises(triton.CompilationError) as problem:
        misspelt_kernel[(1,)](torch.zeros(64))
    _explain(attempt, problem.value, "04.copy")
    quoted = r"line (\d+) of misspelt_kernel, `tl\.store\(x \+ tl\.arrange\(0, 64\), 1\.0\)`"
    (line,) = re.findall(quoted, attempt.message)
    assert "tl.arrange" not in attempt.message.partition("`")[0]
    assert "arrange(0, 64), 1.0)" in linecache.getline(__file__, int(line))
    assert "arrange" in attempt.message.split("`")[2]
    assert "misspelt_kernel[(1,)]" not in attempt.message


def test_a_gpu_that_stopped_says_to_restart_and_where_the_access_is_named():
    attempt = Attempt()
    _explain(
        attempt,
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nSearch for it"),
        "04.copy",
    )
    assert attempt.error == "DeviceLost"
    assert "(CUDA error: an illegal memory access was encountered)" in attempt.message
    assert "restart the notebook's kernel" in attempt.message
    assert 'check("04.copy", backends=["virtual:sm_80"])' in attempt.message
    other = Attempt()
    _explain(other, torch.AcceleratorError("CUDA error: out of memory"), "04.copy")
    assert other.error == "AcceleratorError"
