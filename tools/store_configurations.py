"""Stores what the kernel of 05.autotune needs in the usual configurations, so that a check need not compile them.

    python tools/store_configurations.py

Run it after a change of that kernel or of Triton's version; it takes some minutes. tests/unit/test_u05_autotune.py
compiles a part of it again and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_utils.exercises.u05_triton_matmul import autotune_compiled as table
from gpu_utils.exercises.u05_triton_matmul.autotune_slips import config

NVIDIA = ("sm_80", "sm_89", "sm_90")
AMD = ("gfx90a", "gfx942", "gfx950")

OF_BOTH = ((128, 128, 64, 8), (128, 256, 64, 8), (256, 128, 64, 8), (128, 256, 32, 8), (128, 128, 32, 8))
OF_NVIDIA = (
    *((*tile, stages) for tile in OF_BOTH for stages in (2, 3, 4)),
    *((64, 64, 64, 4, 3), (64, 64, 64, 4, 4), (64, 128, 64, 4, 3), (128, 64, 64, 4, 3), (128, 128, 64, 4, 3)),
    # the list of Triton's tutorial on matrix multiplication
    *((64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4), (128, 32, 32, 4, 4)),
    *((64, 32, 32, 2, 5), (32, 64, 32, 2, 5), (128, 256, 64, 8, 5)),
)
OF_AMD = (
    *((*tile, 2) for tile in OF_BOTH),
    *((128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (256, 128, 64, 8, 3), (256, 256, 32, 8, 2), (256, 256, 64, 8, 2)),
    *((64, 64, 64, 4, 2), (64, 128, 64, 4, 2), (128, 64, 64, 4, 2), (128, 128, 64, 4, 2), (128, 256, 64, 4, 2)),
    *((64, 32, 64, 4, 2), (32, 64, 64, 4, 2), (64, 32, 64, 2, 2), (32, 64, 64, 2, 2), (128, 256, 64, 4, 3)),
)
"""(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages)"""

OF_SMALL_MATRICES = tuple(each for each in OF_AMD if each[2] == 64 and each[4] == 2 and each[:2] != (256, 256))
"""The same with matrix_instr_nonkdim=16"""


def configurations() -> list[tuple[str, dict[str, int]]]:
    """(target, configuration) of everything that is stored."""
    found = [(target, config(*each)) for target in NVIDIA for each in OF_NVIDIA]
    found += [(target, config(*each)) for target in AMD for each in OF_AMD]
    small = {"matrix_instr_nonkdim": 16}
    found += [(target, config(*each, **small)) for target in AMD for each in OF_SMALL_MATRICES]
    found += [(target, config(64, 32, 64, 4, 2, matrix_instr_nonkdim=32)) for target in AMD]
    found += [(target, config(128, 256, 64, 8, deep, waves_per_eu=4)) for target in AMD for deep in (2, 3)]
    found += [(target, config(128, 256, 64, 8, 2, kpack=2)) for target in ("gfx90a", "gfx942")]
    return found


if __name__ == "__main__":
    every = configurations()
    needs = {}
    for number, (target, one) in enumerate(every, 1):
        name = table.label(target, one)
        needs[name] = table.compiled(target, one)
        print(f"{number} of {len(every)}: {name}: {needs[name]}", flush=True)
    table.write(needs)
