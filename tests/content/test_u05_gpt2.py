"""The solutions of units 04 and 05 in a training step of GPT-2: right to float64, each and all."""

from __future__ import annotations

from typing import Any

from gpu_utils.backends.swapped_step import own_kernels_in_gpt2
from gpu_utils.course.sources import load_solution
from gpu_utils.model.swapped_operators import OPERATORS

PARTS = {
    "layer_norm": ("04.layernorm", "04.layernorm_backward"),
    "gelu": ("04.gelu",),
    "softmax": ("04.softmax",),
    "cross_entropy": ("04.cross_entropy",),
    "dropout": ("04.dropout",),
    "linear": ("05.tiled",),
}
"""Operator -> the exercises whose answers stand in its place."""


def own() -> dict[str, Any]:
    functions = {operator: tuple(map(load_solution, names)) for operator, names in PARTS.items()}
    return {operator: found if len(found) > 1 else found[0] for operator, found in functions.items()}


def test_every_operator_that_these_units_replace_has_its_exercises_named():
    assert PARTS.keys() == OPERATORS.keys() - {"attention"}  # of unit 06


def test_each_solution_trains_a_gpt2_as_torch_does():
    """And all of them together; on sm_80 too they are in the test of unit 06."""
    given = own()
    rows = own_kernels_in_gpt2(("gfx942",), **given)
    assert len(rows) == len(given) + 1
    for name, row in rows.items():
        assert row["loss off"] < 1e-6, name
        assert row["gradients off"] < 10 * row["torch's off"], name
        assert row["bytes, own"] <= 1.25 * row["bytes, torch"], name  # a bias is added by a launch of its own
