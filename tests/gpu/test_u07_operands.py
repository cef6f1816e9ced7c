"""The layouts of matrix operands on this chip: the kernels of tests/unit/test_u07_operands.py, by the driver."""

from __future__ import annotations

import pytest

from gpu_utils.chips import probe
from gpu_utils.exercises.u07_ptx_and_amdgcn import on_device
from gpu_utils.ui.operand_layouts import INSTRUCTIONS
from tests.unit.test_u07_operands import from_registers, prepared, problems


@pytest.mark.parametrize("name", [name for name, each in INSTRUCTIONS.items() if each.vendor == "nvidia"])
def test_every_element_is_where_the_rule_says(name):
    each, target = INSTRUCTIONS[name], probe().target
    if target not in each.targets:
        pytest.skip(f"{name} needs {' or '.join(each.targets)}; this is {target}")
    a, b, c = problems(each)
    text, grid, block, args = prepared(each, target, a, b, c)
    d = on_device.launch(text, "product", grid, block, args, args[-1])
    assert (from_registers(d, each.operands["D"]) == a @ b + c).all()
