"""The numbers that the prose of lesson 02 states are those that its cells print, with the compilers of today."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from gpu_utils import CHIPS
from gpu_utils.analytic.access import bank_conflicts
from gpu_utils.analytic.inference import MODELS, largest_batch, plan
from gpu_utils.course.cells import parse_cells

LESSON = Path(__file__).parents[2] / "content/02_gpu_machine/lesson.py"

STATED = {
    "imports": [],
    "run the branch": ["blocks of 32         36 issued, 100% on       36 issued,  50% on       36 issued, 100% on"],
    "divergence by rule": ["gfx942  rule: 36 issued, 1404 of 2304 lane slots lost; counted: 36 issued, 1404 lost"],
    "count strides": ["    32       64 (64)       8x       64 (64)      16x       64 (64)      32x"],
    "widths and offsets": [
        "floats of a lane: 4, offset 0   sm_80   32 transactions (1 x 16)   gfx942    8 transactions (1 x 16)",
        "floats of a lane: 4, offset 1   sm_80  130 transactions (4 x 4)    gfx942    9 transactions (1 x 16)",
    ],
    "count banks": ["stride 32                       62 (62)       62 (62)       31 (31)"],
    "count transpose": [
        "sm_80    direct          2,048   16,384 of  32 bytes                   0",
        "gfx942   direct            512    8,192 of 128 bytes                   0",
        "gfx950   tile_of_33        512      512 of 128 bytes                 256",
    ],
    "a matmul": ["gfx942    68 registers a lane,   8192 bytes of shared memory"],
    "occupancy by hand": [],
    "read the comments": ["; LDSByteSize: 0 bytes", "1 blocks of 8: 8 of 32 waves (25%), limited by LDS"],
    "kernels of any size": [
        "   68         7       6      7   <- decides",
        "  161         3       2      3   <- decides",
        "  170         2       2      2\n",
    ],
    "the kernel descriptor": ["  68 VGPRs: the field says 8, that is 72 registers"],
    "force more waves": ["gfx942 waves_per_eu unset  140 registers,     0 spilled", "16 of 32 waves, limited by LDS\n"],
    "the ridges": ["H20                                148       4      37"],
    "through the l2": ["Instinct MI300X 8 L2:    4,718,592 bytes, 4.5 readings"],
    "cache by hand": ["512 + 64) * 2 bytes = 70,272 bytes a token"],
    "what fits where": ["H100: (80 - 14.5) GB // 4.29 GB = 15", "MI300X: (192 - 14.5) GB // 4.29 GB = 41"],
}
"""Title of a cell -> parts of its output that the text around it relies on."""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> dict[str, str]:
    """What the cells of STATED print, run in order in one namespace; each has a file, which Triton reads."""
    folder = tmp_path_factory.mktemp("lesson")
    cells = {cell.title: cell.source for cell in parse_cells(LESSON.read_text("utf-8"), LESSON.name)}
    namespace: dict[str, object] = {"__name__": "lesson", "my_guess": None}
    printed = {}
    for number, title in enumerate(STATED):
        place = folder / f"cell{number}.py"
        place.write_text(cells[title], "utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(cells[title], str(place), "exec"), namespace)
        printed[title] = out.getvalue()
    return printed


@pytest.mark.parametrize("title", [title for title in STATED if STATED[title]])
def test_a_cell_prints_what_the_text_says(outputs, title):
    for line in STATED[title]:
        assert line in outputs[title], outputs[title]


@pytest.mark.parametrize(("name", "lost"), [("Mistral-7B", 1), ("Falcon-7B", 12)])
@pytest.mark.parametrize("chip", ["H100", "MI300X"])
def test_activations_cost_as_many_sequences_as_the_text_says(name, lost, chip):
    model, room = MODELS[name], CHIPS[chip].memory_gb.value * 1e9
    alone = (room - 2 * model.parameters) // model.cache.total(1, 32768)
    assert alone - largest_batch(chip, model, 32768, weight_bytes=2, cache_bytes=2) == lost
    assert 3e9 < plan(chip, model, batch=1, context=32768).activations < 4e9


def test_the_padded_tile_has_one_conflict_for_each_read_on_gfx950_and_none_for_a_write():
    rows = [divmod(lane, 32) for lane in range(64)]
    write = bank_conflicts([4 * (33 * row + column) for row, column in rows], target="gfx950", access="write")
    read = bank_conflicts([4 * (33 * column + row) for row, column in rows], target="gfx950", access="read")
    assert (write.conflicts, read.conflicts) == (0, 1)
    assert 16 * 4 * 4 == 256  # blocks, wavefronts of each, rows of each thread
