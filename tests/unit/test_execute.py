"""What an answer is given: copies of the inputs, as they were."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.grading.execute import move

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
