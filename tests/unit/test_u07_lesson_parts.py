"""What lessons of unit 07 use: kernels by hand on every target, loops of listings, the index of instructions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.assembly import instructions
from gpu_utils.compiler.stored import entries
from gpu_utils.errors import BadArgument, CompileFailed, LateData
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import AMD, NVIDIA
from gpu_utils.exercises.u07_ptx_and_amdgcn.instruction_index import AMDGCN, PTX, entry_of, instruction_index
from gpu_utils.exercises.u07_ptx_and_amdgcn.lesson_by_hand import by_hand, dialect
from gpu_utils.exercises.u07_ptx_and_amdgcn.lesson_listings import loop_lines, named_registers

ROOT = Path(__file__).parents[2]
LESSON = (ROOT / "content" / "07_ptx_and_amdgcn" / "lesson.py").read_text("utf-8")


def text(name: str) -> str:
    """A body of the lesson, by the name of its variable."""
    return re.search(rf'^{name} = """\n(.*?)"""', LESSON, re.MULTILINE | re.DOTALL)[1]


def ended(target: str, name: str, parameters: str, args: list, expected: torch.Tensor, threads: int) -> str:
    body = text(name) if target in NVIDIA else dialect(text(name), target)
    return by_hand("kernel", parameters, body, target, shared=512).ended(threads, args, expected)


@pytest.mark.parametrize("target", [*NVIDIA, *AMD])
def test_the_squares_of_the_lesson_are_right_on_every_target(target):
    x, y = torch.randn(64), torch.randn(64)
    name = "SQUARES_PTX" if target in NVIDIA else "SQUARES_AMD"
    assert ended(target, name, "x_ptr y_ptr out_ptr", [x, y, torch.zeros(64)], x * x + y * y, 64) == "right"


@pytest.mark.parametrize("target", AMD)
def test_the_reversal_through_the_lds_is_right_in_the_words_of_every_target(target):
    x = torch.randn(128)
    assert ended(target, "TURN_AMD", "x_ptr y_ptr", [x, torch.zeros(128)], x.flip(0), 128) == "right"


COPIES = [("COPY_PTX", target) for target in NVIDIA]
COPIES += [("BULK", target) for target in ("sm_90", "sm_100", "sm_120")]
COPIES += [("COPY_AMD", target) for target in ("gfx942", "gfx950")]


@pytest.mark.parametrize(("name", "target"), COPIES)
def test_copies_past_the_registers_are_right_where_there_are_such(name, target):
    x = torch.randn(128)
    assert ended(target, name, "x_ptr y_ptr", [x, torch.zeros(128)], x.flip(0), 128) == "right"


@pytest.mark.parametrize("target", [*NVIDIA, *AMD])
def test_the_leaky_relu_of_the_lesson_is_right_on_every_target(target):
    x, out = torch.randn(64), torch.full((64,), 7.0)
    expected = torch.where(x < 0, x * 0.1, x)
    expected[50:] = 7
    name = "LEAKY_PTX" if target in NVIDIA else "LEAKY_AMD"
    body = text(name) if target in NVIDIA else dialect(text(name), target)
    by_hand("leaky", "x_ptr y_ptr n", body, target).run(64, [x, out, 50])
    assert torch.allclose(out, expected)


def test_both_spellings_of_a_wait_are_told_apart_where_gfx12_splits_the_counter():
    words = re.findall(r"s_\w+", dialect(text("TURN_AMD"), "gfx1201"))
    waits = [word for word in words if "wait" in word or "barrier" in word]
    assert waits == [
        *("s_wait_kmcnt", "s_wait_loadcnt", "s_wait_dscnt", "s_barrier_signal", "s_barrier_wait", "s_wait_dscnt"),
    ]


def test_a_missing_wait_is_told_in_short_words():
    body = text("SQUARES_AMD").replace("s_waitcnt vmcnt(1)", "")
    kernel = by_hand("squares", "x_ptr y_ptr out_ptr", body, "gfx942")
    args = [torch.randn(64), torch.randn(64), torch.zeros(64)]
    with pytest.raises(LateData):
        kernel.run(64, args)
    assert kernel.ended(64, args, torch.zeros(64)) == (
        "LateData: `v_mul_f32_e32 v1, v1, v1` reads v1 while `global_load_dword v1, v0, s[4:5]` is still to fill it; "
        "put `s_waitcnt vmcnt(1)` between them"
    )


def test_a_comment_may_stand_behind_an_instruction_of_either_vendor():
    for target, line in {"sm_80": "  ret; // the end", "gfx942": "  s_endpgm // the end"}.items():
        by_hand("nothing", "x_ptr", line, target).run(32, [torch.zeros(1)])


def test_a_line_that_the_assembler_refuses_is_named():
    with pytest.raises(CompileFailed, match="v_nothing"):
        by_hand("bad", "x_ptr", "  v_nothing v0, v1\n  s_endpgm", "gfx942")


def test_the_index_has_a_line_for_every_instruction_of_the_stored_listings_and_of_the_lesson():
    texts = [(one["target"], one["asm"]) for one in entries() if "asm" in one]
    texts += [("sm_90", text(name)) for name in ("LEAKY_PTX", "SQUARES_PTX", "COPY_PTX", "BULK")]
    texts += [("gfx942", text(name)) for name in ("LEAKY_AMD", "TURN_AMD", "COPY_AMD")]
    for target, asm in texts:
        vendor = TARGETS[target].vendor
        for one in instructions(asm, vendor):
            entry_of(one.mnemonic, vendor)


def test_the_registers_that_a_listing_names_are_counted_without_predicates():
    ptx = "  .reg .pred %p<9>; \n  .reg .b32 %r<5>;\n  .reg .b64 %rd<3>;\n  ret;"
    assert named_registers(by_hand("k", "x_ptr", ptx, "sm_80")) == 5 + 2 * 3
    amdgcn = "  v_mov_b32 v[0], 0\n  global_load_dwordx4 v[4:7], v0, s[20:21]\n  v_accvgpr_write_b32 a1, v0\n  s_endpgm"
    assert named_registers(by_hand("k", "x_ptr", amdgcn, "gfx942")) == 8 + 2


def test_listings_of_two_vendors_have_no_index_in_common():
    with pytest.raises(BadArgument, match="one vendor"):
        instruction_index(by_hand("k", "x_ptr", "  ret;", "sm_80"), by_hand("k", "x_ptr", "  s_endpgm", "gfx942"))


def test_the_lines_of_a_loop_are_folded_by_mnemonic():
    body = """
  .reg .pred %p1; .reg .b32 %r<9>;
  mov.u32 %r1, 0;
AGAIN:
  cp.async.wait_group 2;
  bar.sync 0;
  bar.sync 0;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p1, %r1, 3;
  @%p1 bra AGAIN;
  ret;
"""
    rows = loop_lines(by_hand("k", "x_ptr", body, "sm_80"))
    assert rows == [{"instruction": "cp.async.wait_group 2;", "times": 1}, {"instruction": "bar.sync 0;", "times": 2}]


_WRITTEN = r"(?<![\w.])[a-z][a-z0-9]*(?:[._][a-z0-9_]+)*"


def told_in(unit: str) -> set[str]:
    """Words of a unit's lesson and lab that may be mnemonics."""
    folder = next((ROOT / "content").glob(f"{unit}_*"))
    texts = "".join(path.read_text("utf-8") for path in folder.iterdir()).replace("\\", "")
    return set(re.findall(_WRITTEN, texts))


@pytest.mark.parametrize("table", [PTX, AMDGCN], ids=["PTX", "AMDGCN"])
def test_a_unit_that_the_index_names_has_the_instruction(table):
    words = {unit: told_in(unit) for unit in {entry.met for entry in table} - {"07"}}
    missing = [
        entry.name
        for entry in table
        if entry.met != "07" and not any(re.match(entry.pattern, word) for word in words[entry.met])
    ]
    assert missing == []


def test_a_mnemonic_without_a_line_in_the_index_is_named():
    with pytest.raises(BadArgument, match="frobnicate"):
        entry_of("frobnicate", "nvidia")
