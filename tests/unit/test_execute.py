"""What an answer is given: copies of the inputs, as they were."""

from __future__ import annotations

import linecache

import pytest
import torch

from gpu_utils.grading.execute import move, quote_kernel_line

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
    moved = move({"x": [view]}, "cpu")["x"][0]
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
