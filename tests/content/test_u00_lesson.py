"""The numbers that lesson 00 states are those that its cells show, with the compilers of today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.content.lesson_cells import printed

LESSON = Path(__file__).parents[2] / "content/00_start/lesson.py"
STATED = {
    "imports": [],
    "where kernels run": [],
    "guess programs": [],
    "who owns what": [r"programs +3$", r"positions that are off +2$", r"program +0 +0 +0 +0 +1 +1 +1 +1 +2 +2$"],
    "no mask": [
        r"sm_80: OutOfBounds: .*tl\.store\(out_ptr\s\+\s+offsets,\s+program\)",
        r"`buffer_store",
        r"`@%p1\s+st\.global",
    ],
    "scale": [r"equal to torch: True"],
    "guess lanes of a program": [],
    "launch figure": [r"lane 0 of warp 0 holds 0-3 and 512-515", r"lane 0 of wavefront 0 holds 0-3\."],
    "more imports": [],
    "compile for four targets": [r"sm_90 +32 +2 +128", r"gfx942 +64 +1 +128", r"gfx1100 +32 +2 +128"],
    "guess odd": [],
    "odd length": [r"sm_90 +32 +8 +32", r"gfx942 +64 +4 +32"],
    "guess masks": [],
    "listing": [
        r"guards on sm_90, 8 floats a lane +4$",
        r"writes of EXEC on gfx942, 4 floats +1$",
        r"@%p1 ld\.global\.v4\.b32",
        r"global_load_dwordx4",
        r"s_load_dwordx2",
        r"s_waitcnt vmcnt\(0\)",
    ],
    "masks only": [
        r"setp\.lt\.s32 %p1",
        r"s_and_saveexec_b64",
        r"v_cmp_gt_i32",
    ],
    "buffer mask": [
        r"s_load_dwordx2",
        r"v_bfrev_b32",
        r"0x7ffffffe",
        r"v_cndmask_b32",
        r"buffer_load_dwordx4 .* s\[0:3\], 0 offen",
    ],
    "print inside": [r"offsets \[ 8  9 10 11\] exist \[ True  True False False\]"],
    "guess equal": [],
    "ways that work here": [r"interpreter +yes +0$", r"virtual sm_80 +no +\d", r"virtual gfx942 +no +\d"],
    "guess counts": [],
    "counters": [r"waves +256 +256", r"_load_bytes +262,144 +262,144", r"_global +1,024 +512"],
    "per line": [r"tl\.load.* 8 move", r"in all .* 4 argument load", r"in all .* 10 scalar, 9 vector"],
    "guess strided": [],
    "strided access": [r"stride 8: sm_80 8, gfx942 8;", r"stride 32: sm_80 8, gfx942 32;"],
    "guess lanes": [],
    "step on gfx942": [r"vcc = 0xfffffffff$", r"v1 = 65, 66, \.\.\., 0$", r"lanes off on gfx942 +0"],
    "step on gfx942 with EXEC": [r"s_and_saveexec_b64 s\[0:1\], vcc \| EXEC: 36 of 64 lanes"],
    "step on sm_80": [r"guard %p1: 18 of 32 lanes \(0-17\)"],
}
"""Title of a cell -> patterns of what it shows that the text around it relies on."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lesson")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("W2W_DATA", str(folder / "data"))
        return printed(LESSON, STATED, folder)


@pytest.mark.parametrize("title", [title for title in STATED if STATED[title]])
def test_a_cell_shows_what_the_text_says(shown, title):
    for pattern in STATED[title]:
        assert re.search(pattern, shown[title], re.MULTILINE), f"{pattern!r} is not in\n{shown[title]}"
