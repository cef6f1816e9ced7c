"""What learners write in 07.dpp_sum: for each name the answer and its hint."""

from __future__ import annotations

from collections.abc import Callable

from gpu_utils.grading.cpp import Framed

Answer = Callable[[int], str]

_ROW = "".join(f"  v_add_f32_dpp v1, v1, v1 row_shr:{n}\n  s_nop 1\n" for n in (8, 4, 2, 1))
_LAST_64 = "  v_readlane_b32 s8, v1, 63"
_TURNED = "  v_permlanex16_b32 v2, v1, 0, 0\n  v_add_f32 v1, v1, v2\n"


def _one_by_one(lanes: int) -> str:
    """Every lane by v_readlane, added in a vector register."""
    lines = ["  v_mov_b32 v2, 0"]
    for lane in range(lanes):
        lines += [f"  v_readlane_b32 s{9 + lane % 4}, v1, {lane}", "  s_nop 1", f"  v_add_f32 v2, s{9 + lane % 4}, v2"]
    return "\n".join([*lines, "  s_nop 0", "  v_readlane_b32 s8, v2, 0"])


def _swizzled(lanes: int) -> str:
    lines = []
    for offset in (16, 8, 4, 2, 1):
        lines += [f"  ds_swizzle_b32 v2, v1 offset:swizzle(SWAP,{offset})", "  s_waitcnt lgkmcnt(0)"]
        lines += ["  v_add_f32 v1, v1, v2"]
    return "\n".join([*lines, "  s_nop 0", "  v_readlane_b32 s8, v1, 0"])


def answers(wide: Framed, narrow: Framed) -> dict[str, tuple[Answer, str]]:
    """Name -> (the answer, its hint)."""

    def both(part_64: str | None = None, part_32: str | None = None) -> Answer:
        at = {
            64: wide if part_64 is None else wide.filled(part_64.rstrip("\n")),
            32: narrow if part_32 is None else narrow.filled(part_32.rstrip("\n")),
        }
        return lambda lanes: at[lanes]()

    def changed(in_64: tuple[tuple[str, str], ...] = (), in_32: tuple[tuple[str, str], ...] = ()) -> Answer:
        at = {64: wide.changed(*in_64), 32: narrow.changed(*in_32)}
        return lambda lanes: at[lanes]()

    return {
        "no_wait_states": (
            changed((("  s_nop 1\n", ""),)),
            "The sum is right here, and need not be on the chip: on gfx9 a DPP instruction reads too early what the "
            "vector instruction before it writes. Which instruction lets wait states pass, and how many are wanted?",
        ),
        "s_nop_0": (
            changed((("s_nop 1", "s_nop 0"),)),
            "s_nop N lets N + 1 wait states pass. How many does s_nop 0 give, and how many does a DPP read want?",
        ),
        "no_wait_for_readlane": (
            changed((("  s_nop 0\n", ""),)),
            "gfx942 and gfx950 want a wait state between a vector instruction that writes a register and the "
            "v_readlane_b32 that reads it; gfx90a does not ask for it.",
        ),
        "one_row": (
            both(_ROW + _LAST_64, "".join(narrow.solution.splitlines(True)[:4]) + "  v_readlane_b32 s8, v1, 0"),
            "One row of 16 is summed, and the others are missing. row_shr, row_xmask, quad_perm and row_mirror never "
            "leave a row. Which instructions do, on gfx9, and on gfx11 and gfx12?",
        ),
        "assumes_32": (
            both(_ROW + "  v_add_f32_dpp v1, v1, v1 row_bcast:15\n  s_nop 0\n  v_readlane_b32 s8, v1, 31"),
            "Lanes 0 to 31 are summed. A wavefront of gfx9 has 64: two more rows of 16 follow.",
        ),
        "row_bcast_everywhere": (
            both(None, _ROW + "  v_add_f32_dpp v1, v1, v1 row_bcast:15\n  v_readlane_b32 s8, v1, 31"),
            "gfx11 and gfx12 have no row_bcast. For waves of 32 another instruction reads the other row of 16.",
        ),
        "text_of_32_everywhere": (
            lambda lanes: narrow(),
            "row_xmask and v_permlanex16_b32 are of gfx10 and later; gfx9 has neither. For 64 lanes use "
            "row_shr (or row_ror, quad_perm, row_mirror) and row_bcast.",
        ),
        "reads_lane_0": (
            both(wide.solution.replace("v1, 63", "v1, 0"), _ROW + _TURNED + "  v_readlane_b32 s8, v1, 0"),
            "row_shr moves towards higher lanes: the sum of a row is in its last lane, not in its first. Which lane "
            "has all? (v_permlanex16_b32 with 0, 0 reads lane 0 of the other row.)",
        ),
        "row_shl_before_row_bcast": (
            changed((("row_shr", "row_shl"),)),
            "row_shl gathers the sum of a row in its first lane, and row_bcast hands on the last one. Which way must "
            "the sums move?",
        ),
        "stops_at_4": (
            changed(
                (("  v_add_f32_dpp v1, v1, v1 row_shr:8\n  s_nop 1\n", ""),),
                (("  v_add_f32_dpp v1, v1, v1 row_xmask:8\n", ""),),
            ),
            "The steps 4, 2 and 1 reach 8 lanes. A row has 16.",
        ),
        "whole_numbers": (
            changed((("v_add_f32", "v_add_u32"),), (("v_add_f32", "v_add_nc_u32"),)),
            "The bits of the floats are added as whole numbers. Which type must the addition have?",
        ),
        "adds_the_moved_value_twice": (
            both(
                _moved_twice((8, 4, 2, 1), "row_shr") + _bcast() + _LAST_64,
                _moved_twice((8, 4, 2, 1), "row_xmask") + _TURNED + "  v_readlane_b32 s8, v1, 0",
            ),
            "A lane adds what it was handed to itself, and its own number is lost: look at the two sources of the "
            "addition.",
        ),
        "row_bcast_31_first": (
            changed(
                (("row_bcast:15", "row_bcast:@"), ("row_bcast:31", "row_bcast:15"), ("row_bcast:@", "row_bcast:31"))
            ),
            "row_bcast:31 hands on lane 31, which must hold rows 0 and 1 by then. Which of the two comes first?",
        ),
        "permlane16": (
            changed((), (("v_permlanex16", "v_permlane16"),)),
            "v_permlane16_b32 stays in its row, so a row is counted twice. The x in v_permlanex16_b32 is for the other "
            "row.",
        ),
        "other_row_overwrites": (
            changed((), (("v_permlanex16_b32 v2", "v_permlanex16_b32 v1"), ("  v_add_f32 v1, v1, v2\n", ""))),
            "What comes from the other row replaces the own sum. Put it into another register, then add.",
        ),
        "left_in_v1": (
            changed((("  v_readlane_b32 s8, v1, 63", "  s_nop 0"),), (("  v_readlane_b32 s8, v1, 0", "  s_nop 0"),)),
            "Nothing is written to s8. v1 has the sum in one lane or in all; which instruction takes one lane of a "
            "vector register to a scalar one?",
        ),
        "last_lane_alone": (
            changed(
                (
                    (
                        "  v_add_f32_dpp v1, v1, v1 row_bcast:15",
                        "  s_mov_b64 exec, 1\n  v_add_f32_dpp v1, v1, v1 row_bcast:15",
                    ),
                ),
                (("  v_permlanex16_b32", "  s_mov_b32 exec_lo, 1\n  v_permlanex16_b32"),),
            ),
            "A lane that EXEC has switched off takes no part, and DPP does not read from it. Leave all lanes on: that "
            "some of them add what nobody needs costs nothing.",
        ),
        "by_ds_swizzle": (
            _swizzled,
            "ds_swizzle_b32 and ds_bpermute_b32 take the way through the LDS unit, with a wait each. DPP reads another "
            "lane's register in the addition itself.",
        ),
        "one_by_one": (
            _one_by_one,
            "One lane after the other is read and added, and the vector unit adds one number at a time. Let all lanes "
            "add at once: how many steps does a row of 16 take?",
        ),
    }


def all_of(wide: Framed, narrow: Framed) -> dict[str, tuple[Answer, str]]:
    """The answers, and those that are wrong in both texts also with one of them right: texts are written in turn."""

    def in_one(answer: Answer, at: int) -> Answer:
        return lambda lanes: answer(lanes) if lanes == at else {64: wide, 32: narrow}[lanes]()

    every = {}
    for name, (answer, hint) in answers(wide, narrow).items():
        every[name] = answer, hint
        if answer(64) != wide() and answer(32) != narrow():
            for at in (64, 32):
                every[f"{name}_of_{at}"] = in_one(answer, at), f"{hint} (It is the text for {at} lanes.)"
    return every


def _moved_twice(steps: tuple[int, ...], way: str) -> str:
    return "".join(f"  v_mov_b32_dpp v2, v1 {way}:{n} bound_ctrl:0\n  v_add_f32 v1, v2, v2\n  s_nop 1\n" for n in steps)


def _bcast() -> str:
    return "".join(f"  v_add_f32_dpp v1, v1, v1 row_bcast:{n}\n  s_nop 1\n" for n in (15, 31))
