"""The explorers: drawings that a learner moves with sliders and typed expressions, all offline and by keyboard.

Each module holds one: a function from a state to a Picture (HTML with inline SVG, and the same in words), and under it
the controls.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gpu_utils.errors import UnknownName

EXPLORERS = {
    "occupancy": "occupancy",
    "access": "access",
    "divergence": "divergence",
    "roofline": "roofline",
    "memory": "inference",
    "costs": "costs",
    "tiles": "tiles",
    "online": "online",
    "causal": "causal",
    "numbers": "numbers",
    "routing": "routing",
    "network": "network",
    "timeline": "timeline",
    "kernels": "kernels",
    "operands": "operands",
    "schedule": "schedule",
    "lowered": "lowered",
    "layout": "layout",
}
"""Name of an explorer -> its module."""


def explore(name: str, *what: Any, **start: Any) -> Any:
    """An explorer, as the last line of a cell: controls above a drawing that follows them.

    name   "occupancy"   how many waves fit on an SM and a CU, and what keeps more out; what: up to one kernel for each
                         vendor (`compile_for(...)` or `resources(...)`) whose real figures the sliders start from
           "access"      coalescing and bank conflicts, lane by lane; what: an index expression such as "lane * 33"
           "divergence"  two warps and a wavefront at a branch, instruction by instruction; what: a condition in lane
           "roofline"    any chips of the registry; chips=[...], points=[Point(...)], dtype="bf16"
           "memory"      weights, KV cache and activations: what fits where
           "costs"       what training a GPT-2 of any shape costs
           "tiles"       the order of a matrix product's tiles, and what the L2 fetches for those that run together
           "online"      the online softmax, block by block; what: the logits of a row; block=8, step=2, masked=True
           "causal"      attention's scores in tiles: which ones a causal mask or a window skips, and what that saves
           "numbers"     the numbers of FP8 and its kin: neighbours and rounding of a value, its bits, and what the
                         other vendor's flavour reads; what: a format, "e4m3fn"; value="0.1", zoom=0, second="e5m2"
           "routing"     tokens to experts over the steps of a training: loads, imbalance, dropped tokens; what: a way
                         to balance, "bias"; experts=8, k=2, factor=1.25, step=100
           "network"     a collective on a network, step by step: bytes of each link, the busiest one, time by terms;
                         topology="8 H100, NVLink switch", collective="all-reduce", algorithm="ring", power=24, step=1
           "timeline"    what the host did, what ran in each stream, and the gaps between, with their causes; what: a
                         profile, or a modelled program: "launch-bound", "sync", "copy", "overlap"; launch=5, kernel=2
           "kernels"     a kernel on the rooflines of two chips: what FLOP, bytes and waiting take, and which one bounds
                         it; what: a Profile, its table, or Points; nvidia="A100", amd="MI300X", dtype="fp32"
           "operands"    which lane and register holds which element of a matrix instruction's operand; what: an
                         instruction, "mma.m16n8k16.f16" or "v_mfma_f32_32x32x8_f16"; operand="A", row=3, column=5
           "schedule"    two pipeline schedules under each other: steps, idle time, bubble, memory of each rank; what: a
                         schedule, "1F1B"; second="ZB-H1", p=4, m=8, I=100, W=100, link=0, together=100 (percent)
           "lowered"     a tile program beside the sources that TileLang makes of it for up to three targets, by lines;
                         what: a program and its sizes; line=23, targets=("sm_90", "gfx942", "ascend950")
           "layout"      a tile in shared memory: lanes, banks and passes of its accesses, and whether each element
                         has a place of its own; what: a formula in row, col, rows and cols; cols=64, way="operand"
    start  the values that the controls start with; the function `explorer` of its module lists them

    Every explorer works with the keyboard (Tab, arrow keys; the space bar opens a list), says in a sentence what it
    draws, and loads nothing. Where widgets do not run it shows its first state.
    Errors: UnknownName for a name that is not in this list.
    """
    if name not in EXPLORERS:
        raise UnknownName("explorer", name, EXPLORERS)
    return import_module(f"{__name__}.{EXPLORERS[name]}").explorer(*what, **start)
