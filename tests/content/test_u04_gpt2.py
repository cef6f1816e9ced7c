"""The solutions of unit 04 in a training step of GPT-2: right to float64 on both vendors, alone and together."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_utils import exercises
from gpu_utils.backends.swapped_step import own_kernels_in_gpt2
from gpu_utils.course.sources import load_solution
from gpu_utils.model.swapping import OPERATORS

PARTS = {
    "layer_norm": ("layernorm", "layernorm_backward"),
    "gelu": ("gelu",),
    "softmax": ("softmax",),
    "cross_entropy": ("cross_entropy",),
    "dropout": ("dropout",),
}
"""Operator -> the exercises whose answers stand in its place."""


def own() -> dict[str, Any]:
    """The operators whose exercises are all in the unit."""
    there = {name.partition(".")[2] for name in exercises.ids("04")}
    found = {}
    for operator, names in PARTS.items():
        if there.issuperset(names):
            functions = tuple(load_solution(f"04.{name}") for name in names)
            found[operator] = functions if len(functions) > 1 else functions[0]
    return found


def test_every_operator_that_can_be_replaced_has_its_exercises_named():
    assert PARTS.keys() == OPERATORS.keys()


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_the_solutions_train_a_gpt2_as_torch_does(target):
    given = own()
    assert given
    rows = own_kernels_in_gpt2((target,), **given)
    assert len(rows) == len(given) + (len(given) > 1)
    for name, row in rows.items():
        assert row["loss off"] < 1e-6, name
        assert row["gradients off"] < 10 * row["torch's off"], name
        assert row["bytes, own"] <= 1.1 * row["bytes, torch"], name
