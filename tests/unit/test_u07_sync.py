"""Unit 07's listings with numbered lines: what is counted of waits and barriers; no fewer barriers are enough."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import torch

from gpu_utils.errors import VirtualGpuError
from gpu_utils.exercises.u07_ptx_and_amdgcn import barriers, waitcnt
from gpu_utils.exercises.u07_ptx_and_amdgcn.barriers_listing import GAPS, kernel, listing, met
from gpu_utils.exercises.u07_ptx_and_amdgcn.barriers_slips import barriers_of
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import AMD, NVIDIA, amdgcn_kernel
from gpu_utils.exercises.u07_ptx_and_amdgcn.numbered import family_of
from gpu_utils.exercises.u07_ptx_and_amdgcn.waitcnt_listing import LISTING, PARAMETERS, Found, found
from gpu_utils.exercises.u07_ptx_and_amdgcn.waitcnt_slips import waits_of
from gpu_utils.grading.exercise import Case
from gpu_utils.virtual import amdgcn, virtual_gpu

LAB = Path(__file__).parents[2] / "content" / "07_ptx_and_amdgcn" / "lab.py"
FAMILIES = ("ptx", "gfx9", "gfx11", "gfx12")
TARGET = {"gfx9": "gfx942", "gfx11": "gfx1100", "gfx12": "gfx1201"}


def judged(exercise, value, **case):
    case = Case("a test", **case)
    return exercise.EXERCISE.judge(case, exercise.EXERCISE.inputs(case, torch.Generator()), value)


def waits_found(family, value):
    text = amdgcn_kernel("rows", PARAMETERS, LISTING.filled(value), TARGET[family], shared=512)
    return found(amdgcn.decode(text, TARGET[family], "rows"))


@pytest.mark.parametrize("shown", [LISTING, listing("ptx"), listing("gfx9")], ids=["waitcnt", "ptx", "gfx9"])
def test_the_lab_shows_the_listing_that_is_graded(shown):
    text = LAB.read_text(encoding="utf-8")
    assert "\n".join(f"# {line}" for line in shown.shown().splitlines()) in text


@pytest.mark.parametrize("family", FAMILIES)
def test_an_instruction_stands_on_one_line_alone_so_that_a_report_can_name_it(family):
    for one in (listing(family), LISTING):
        assert [one.number(line) for line in one.lines] == list(range(1, len(one.lines) + 1))


@pytest.mark.parametrize("target", AMD)
def test_the_waits_are_right_on_every_target_of_amd(target):
    assert judged(waitcnt, waits_of(family_of(target)), target=target, seed=0) is None


@pytest.mark.parametrize("target", NVIDIA + AMD)
def test_the_barriers_are_right_on_every_target(target):
    assert judged(barriers, barriers_of(family_of(target)), target=target, threads=224) is None


@pytest.mark.parametrize("family", TARGET)
def test_each_wait_is_as_loose_as_it_can_be(family):
    right = waits_of(family)
    assert waits_found(family, right) == Found((), {}, ())
    for line, text in right.items():
        count = int(re.search(r"(\d+)\)?$", text)[1])
        assert waits_found(family, {k: v for k, v in right.items() if k != line}).late
        looser = text[: text.rindex(str(count))] + text[text.rindex(str(count)) :].replace(str(count), str(count + 1))
        assert waits_found(family, right | {line: looser}).late, line
        if count:
            tighter = (
                text.replace(f"{count}", f"{count - 1}", 1)
                if family == "gfx12"
                else text.replace(f"({count})", f"({count - 1})")
            )
            assert waits_found(family, right | {line: tighter}).early == {line: 1}


def test_accesses_that_are_waited_for_early_are_counted_by_line():
    right = waits_of("gfx9")
    assert waits_found("gfx9", right | {10: "s_waitcnt vmcnt(0)"}).early == {10: 3}
    assert waits_found("gfx9", right | {8: "s_waitcnt vmcnt(1)"}).early == {8: 2}
    assert waits_found("gfx9", right | {18: "s_waitcnt vmcnt(5)"}).idle == (18,)
    assert waits_found("gfx9", right | {10: "s_waitcnt vmcnt(3)\ns_waitcnt vmcnt(3)"}).idle == (10,)


def barriers_executed(value, threads=64):
    """How many barriers a wave came to; None where a sanitizer has found something."""
    w, out = torch.rand(threads, generator=torch.Generator().manual_seed(0)) + 0.5, torch.empty(threads)
    try:
        with virtual_gpu("sm_80", sanitize=("racecheck", "waitcheck", "synccheck"), step_limit=500) as gpu:
            text = kernel("ptx", listing("ptx").filled(dict.fromkeys(value, "bar.sync 0;")), "sm_80")
            return met(gpu.load(text).launch("shares", 1, threads, [w, out, threads]))
    except VirtualGpuError:
        return None


def test_no_placement_of_fewer_barriers_is_without_a_race():
    loop, outside = range(4, 15), (2, 3, 15)
    assert barriers_executed((2, 11, 12)) == barriers.fewest(64) == 13
    fewer = [(*inside, *rest) for inside in [(), *((line,) for line in loop)] for n in range(4) for rest in
             itertools.combinations(outside, n)]  # fmt: skip
    fewer += list(itertools.combinations(loop, 2))
    assert [places for places in fewer if barriers_executed(places) is not None] == []


def test_a_gap_is_closed_by_a_barrier_at_any_of_its_lines():
    for between in itertools.product(*(gap.between for gap in GAPS["ptx"][:2])):
        for last in (*GAPS["ptx"][2].between & GAPS["ptx"][3].between,):
            assert barriers_executed({*between, last}), (*between, last)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("bar.sync 0;", "the answer is str 'bar.sync 0;'; expected a dict {line: text} with lines 1 to 15"),
        ({"2": "bar.sync 0;"}, "str '2' is no line of the listing"),
        ({16: "bar.sync 0;"}, "int 16 is no line of the listing"),
        ({True: "bar.sync 0;"}, "bool True is no line of the listing"),
        ({2: ["bar.sync 0;"]}, "before line 2 stands list"),
        ({2: "bar.sync 0;\nret;"}, "before line 2 stands `ret`; only barriers and fences may be put in"),
        ({2: "bar.sync 0; ret;"}, "before line 2 stands `ret`; only barriers and fences may be put in"),
        ({2: "bar.sync 0"}, "before line 2 `bar.sync 0` ends without `;`"),
        ({2: "bar.sync 16;"}, "ptxas refuses this for sm_80"),
        ({2: "bar: mov.u32 %r4, 1; bar.sync 0;"}, "before line 2 stands `bar: mov.u32 %r4, 1`; only barriers"),
        ({9: "bar.sync 0; bar /*;", 11: "bar */ 0;"}, "before line 9 stands `bar /*`; only barriers"),
        ({2: "bar.sync 0, 32;"}, "`bar.sync 0, 32` does not hold the whole block"),
        ({2: "bar.sync %r1;"}, "`bar.sync %r1` does not hold the whole block"),
        ({2: "bar.arrive 0, 256;"}, "`bar.arrive 0, 256` does not hold the whole block"),
        ({2: "bar.sync 0; // " + "x" * 20_000}, "the texts have 20,015 characters"),
        ({2: "bar.sync 0;"}, "line 11 (`st.shared.f32 [%r3], %f1`) writes offset"),
        (
            {2: "bar.sync 0;"},
            "No barrier stands on the way that every wave comes to. In all 3 pairs of lines have none",
        ),
        ({2: "bar.sync 0;", 10: "bar.sync 0;", 12: "bar.sync 0;"}, "Inside of the `if` not every thread comes by"),
        (
            {4: "bar.sync 0;", 11: "bar.sync 0;", 12: "bar.sync 0;", 15: "bar.sync 0;"},
            "came to 25 barriers, expected 17",
        ),
    ],
)
def test_what_is_wrong_with_barriers_is_said_in_the_numbers_of_the_listing(value, said):
    assert said in judged(barriers, value, target="sm_80", threads=256).detail


def test_a_signal_needs_a_wait_on_gfx12():
    right = barriers_of("gfx12")
    twice = right | {2: "s_wait_dscnt 0\ns_barrier_signal -1\ns_barrier_signal -1\ns_barrier_wait -1"}
    found = judged(barriers, twice, target="gfx1201", threads=256)
    assert "each wave signalled 18 times and waited 17 times" in found.detail


def test_a_barrier_that_reduces_is_counted_once():
    value = barriers_of("ptx") | {2: "bar.red.popc.u32 %r9, 0, %p0;"}
    assert judged(barriers, value, target="sm_90", threads=96) is None


def test_a_line_that_is_too_early_says_whether_it_has_a_wait():
    right = waits_of("gfx9")
    loose = right | {10: "s_waitcnt vmcnt(4)"}
    none = {line: text for line, text in right.items() if line != 14}
    for value, said in ((loose, "The wait before line 10 lets too many"), (none, "Line 14 has no wait")):
        assert said in judged(waitcnt, value, target="gfx942", seed=0).detail


@pytest.mark.parametrize("text", ["s_wait_x: v_mov_b32 v9, 0", "s_waitcnt vmcnt(3) /*", "s_wait_y = 5"])
def test_nothing_but_waits_is_put_in(text):
    found = judged(waitcnt, waits_of("gfx9") | {10: text}, target="gfx942", seed=0)
    assert found.kind == "form"
    assert "only instructions that wait" in found.detail


def test_a_wave_that_jumps_over_a_barrier_is_told_from_one_that_is_missing():
    right = barriers_of("gfx9")
    moved = {2: right[2], 10: right[13], 14: right[14]}
    assert "A wave jumps over the one inside" in judged(barriers, moved, target="gfx942", threads=256).detail
    late = right | {2: "s_barrier\ns_waitcnt lgkmcnt(0)"}
    assert "still under way when its wave came" in judged(barriers, late, target="gfx942", threads=256).detail
