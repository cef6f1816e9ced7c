"""00.find_mask: the instructions of both vendors in which a kernel's mask takes effect."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u00_start.mask_kernels import instructions
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

Found = dict[str, Any]


def _inputs(case: Case, _generator: torch.Generator) -> Inputs:
    names = ("kernel", "target", "n", "block", "small")
    return {"instructions": list(instructions(*(case[name] for name in names)))}


def mask_reference(instructions: list[str]) -> Found:
    """How the mask keeps lanes from memory, and the indices of the instructions that do it."""
    guarded = [i for i, text in enumerate(instructions) if text.startswith("@") and ".global" in text]
    if guarded:
        return {"way": "predicate", "at": guarded}
    switched = [i for i, text in enumerate(instructions) if text.startswith("s_and_saveexec_b")]
    if switched:
        return {"way": "EXEC", "at": switched}
    moved = {_writer(instructions, i) for i, text in enumerate(instructions) if text.startswith("buffer_")}
    chosen = sorted(i for i in moved if instructions[i].startswith("v_cndmask"))
    return {"way": "offset" if chosen else "none", "at": chosen}


def _writer(instructions: list[str], access: int) -> int:
    """The last instruction before a buffer access that wrote the register with its offset."""
    offset = instructions[access].split(", ")[1]
    written = (i for i in range(access) if instructions[i].partition(" ")[2].split(",")[0] == offset)
    return max(written)


def _matching(*words: tuple[str, str]) -> Callable[[list[str]], Found]:
    """An answer that marks every instruction with the words of a way; the first way that has some counts."""

    def answer(instructions: list[str]) -> Found:
        for way, word in words:
            if found := [i for i, text in enumerate(instructions) if word in text]:
                return {"way": way, "at": found}
        return {"way": "none", "at": []}

    return answer


def _compares(instructions: list[str]) -> Found:
    right = mask_reference(instructions)
    return {**right, "at": [i for i, text in enumerate(instructions) if text.startswith(("setp", "v_cmp"))]}


def _loads_only(instructions: list[str]) -> Found:
    right = mask_reference(instructions)
    return {**right, "at": [i for i in right["at"] if " st.global" not in instructions[i]]}


def _with_the_branch(instructions: list[str]) -> Found:
    right = mask_reference(instructions)
    branches = [i for i, text in enumerate(instructions) if text.startswith("s_cbranch_execz")]
    return {**right, "at": sorted(right["at"] + branches)}


def _every_guard(instructions: list[str]) -> Found:
    guarded = [i for i, text in enumerate(instructions) if text.startswith("@")]
    return {"way": "predicate", "at": guarded} if guarded else mask_reference(instructions)


def _words_alone(*lanes_off: str) -> Callable[[list[str]], Found]:
    """An answer that looks for one word of each way and asks nothing else."""
    return _matching(("predicate", "@"), *(("EXEC", word) for word in lanes_off), ("offset", "v_cndmask"))


def _compares_name_the_way(instructions: list[str]) -> Found:
    return _matching(("predicate", "setp"), ("EXEC", "v_cmp"))(instructions)


def _exec_in_the_name(instructions: list[str]) -> Found:
    right = mask_reference(instructions)
    named = [i for i, text in enumerate(instructions) if "exec" in text]
    return {"way": "EXEC", "at": named} if right["way"] != "predicate" and named else right


def _last_choice(instructions: list[str]) -> Found:
    """Goes back from an access to a choice of its offset, over whatever wrote the register since."""
    right = mask_reference(instructions)
    if right["way"] in ("predicate", "EXEC"):
        return right
    found = set()
    for access, text in enumerate(instructions):
        if text.startswith("buffer_"):
            offset = text.split(", ")[1]
            chosen = [
                i for i in range(access) if instructions[i].startswith("v_cndmask") and f" {offset}," in instructions[i]
            ]
            found |= set(chosen[-1:])
    return {"way": "offset" if found else "none", "at": sorted(found)}


def _every_choice(instructions: list[str]) -> Found:
    right = mask_reference(instructions)
    if right["way"] in ("predicate", "EXEC"):
        return right
    return _matching(("offset", "v_cndmask"))(instructions)


def _choices_before_lanes(instructions: list[str]) -> Found:
    right = mask_reference(instructions)
    return (
        right if right["way"] == "predicate" else _matching(("offset", "v_cndmask"), ("EXEC", "saveexec"))(instructions)
    )


def _any_offset(instructions: list[str]) -> Found:
    right = mask_reference(instructions)
    if right["way"] in ("predicate", "EXEC") or not any(text.startswith("buffer_") for text in instructions):
        return right
    moved = {_writer(instructions, i) for i, text in enumerate(instructions) if text.startswith("buffer_")}
    return {"way": "offset", "at": sorted(moved)}


def _waves_of_64(instructions: list[str]) -> Found:
    right = mask_reference(instructions)
    if right["way"] != "EXEC" or any("saveexec_b64" in text for text in instructions):
        return right
    return {"way": "none", "at": []}


def _the_accesses(instructions: list[str]) -> Found:
    right = mask_reference(instructions)
    if right["way"] in ("predicate", "none"):
        return right
    accesses = ("buffer_", "global_")
    return {**right, "at": [i for i, text in enumerate(instructions) if text.startswith(accesses)]}


MOST_LINES = 4
"""Lines of the listing that a report quotes on each side."""


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """The comparison with the reference; where indices differ, with the lines that they stand for."""
    expected = mask_reference(inputs["instructions"])
    found = compare(expected, value, EXACT)
    if found is None or found.kind not in ("value", "shape") or not isinstance(value.get("at"), (list, tuple)):
        return found
    yours, right = (_quoted(inputs["instructions"], at) for at in (value["at"], expected["at"]))
    return Difference(found.kind, f"{found.detail}. You named {yours}; right is {right}")


def _quoted(instructions: list[str], at: list[int]) -> str:
    lines = [
        f"{i} `{instructions[i]}`" if type(i) is int and 0 <= i < len(instructions) else f"{i!r:.20}, which is no line"
        for i in at[:MOST_LINES]
    ]
    more = [f"and {len(at) - MOST_LINES} more"] if len(at) > MOST_LINES else []
    return ", ".join(lines + more) or "no line"


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a listing nobody chose",
        kernel=rng.choice(["scale", "leaky", "head", "stride", "wrapped"]),
        target=rng.choice(["sm_80", "sm_90", "gfx90a", "gfx942"]),
        n=rng.choice([1_000_000, 1_000_001]),
        block=rng.choice([256, 512]),
        small=rng.choice([True, False]),
    )


def _case(why: str, kernel: str, target: str, n: int = 1_000_000, block: int = 256, small: bool = True) -> Case:
    return Case(why, kernel=kernel, target=target, n=n, block=block, small=small)


_EXAMPLES = (
    ["v_cmp_gt_i32_e32 vcc, s6, v0", "s_and_saveexec_b64 s[0:1], vcc"],
    [
        "setp.lt.s32 %p1, %r12, %r7;",
        "@%p1 ld.global.b32 { %r1 }, [ %rd1 + 0 ];",
        "mul.f32 %r3, %r8, %r1;",
        "setp.lt.f32 %p2, %r3, 0f00000000;",
        "@%p1 st.global.b32 [ %rd2 + 0 ], { %r3 };",
        "@%p2 bra $L__BB0_2;",
    ],
)

_WRITTEN_AGAIN = [
    "v_cmp_gt_i32_e32 vcc, s6, v1",
    "v_lshlrev_b32_e32 v0, 2, v1",
    "v_cndmask_b32_e32 v0, v3, v0, vcc",
    "v_lshlrev_b32_e32 v0, 2, v1",
    "buffer_load_dword v2, v0, s[8:11], 0 offen",
]
_LOAD_ONLY = [
    "v_cmp_gt_i32_e32 vcc, s6, v0",
    "v_cndmask_b32_e32 v1, v3, v2, vcc",
    "buffer_load_dword v4, v1, s[8:11], 0 offen",
    "v_lshlrev_b32_e32 v5, 2, v0",
    "buffer_store_dword v4, v5, s[4:7], 0 offen",
]

EXERCISE = Exercise(
    id="00.find_mask",
    title="Find the mask in the machine code",
    parameters=("instructions",),
    kind="host",
    inputs=_inputs,
    reference=mask_reference,
    judge=_judge,
    cases=(
        Example("the example of the docstring", instructions=_EXAMPLES[0]),
        Example("the example of the statement", instructions=_EXAMPLES[1]),
        _case("PTX: one guarded load, one guarded store", "scale", "sm_80"),
        _case("PTX: 16 does not divide n, so each element has its own guard", "scale", "sm_90", n=1_000_001, block=512),
        _case("AMDGCN for tensors of any size: lanes are switched off", "scale", "gfx942", small=False),
        _case("AMDGCN as launched: the offset is moved out of the tensor", "scale", "gfx942"),
        _case("a wavefront of 32 has an EXEC of 32 bits", "scale", "gfx1100", small=False),
        _case("a second v_cndmask_b32 chooses a value, not an offset", "leaky", "gfx942"),
        _case("lanes are switched off, and a choice of a value stands beside it", "leaky", "gfx942", small=False),
        _case("PTX: branches of a loop are guarded too", "stride", "sm_80"),
        _case("offsets are compared with n, and yet no access is masked", "head", "gfx942"),
        _case("the same for NVIDIA", "head", "sm_80"),
        _case("PTX: the loads stay inside by their offsets, only the store is masked", "wrapped", "sm_80"),
        _case("AMDGCN as launched: the same", "wrapped", "gfx942"),
        _case("lanes that were off are switched on again, which is no mask", "stride", "gfx942", small=False),
        _case("gfx1100 as launched: its vcc has 32 bits, and its accesses have other names", "scale", "gfx1100"),
        _case("each element switches lanes off for itself", "scale", "gfx1100", n=1_000_001, small=False),
        Example("what was chosen is lost: its register is written again", instructions=_WRITTEN_AGAIN),
        Example("the load is masked, the store is not", instructions=_LOAD_ONLY),
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda instructions: {"way": "none", "at": []},
        "everything": lambda instructions: {"way": "predicate", "at": list(range(len(instructions)))},
        "the first": lambda instructions: {"way": "EXEC", "at": [0]},
    },
    misconceptions=(
        Misconception(
            "compares",
            _compares,
            "These instructions work out the mask: they write a predicate or vcc. Nothing is masked until another "
            "instruction uses it. Which one keeps the lane from memory?",
        ),
        Misconception(
            "compares_name_the_way",
            _compares_name_the_way,
            "These are comparisons: they write a predicate or vcc, and mask nothing. The way is told by the "
            "instruction that uses what they wrote: a guarded access, s_and_saveexec, or a chosen offset.",
        ),
        Misconception(
            "words_alone",
            _words_alone("saveexec"),
            "You look for a word of each way, and such words stand elsewhere too: @ before the branch of a loop, "
            "v_cndmask_b32 for a tl.where. Ask each what it does: is the guarded instruction an access to global "
            "memory? Is what was chosen the offset of a buffer access?",
        ),
        Misconception(
            "exec_in_the_name",
            _exec_in_the_name,
            "s_cbranch_execz reads EXEC, and s_or_b64 exec, exec, ... switches lanes on again: both have exec in "
            "their text, and neither switches a lane off. Which instruction does?",
        ),
        Misconception(
            "last_choice",
            _last_choice,
            "A chosen offset counts only if it is still there when the access comes. Go back from the access to the "
            "last instruction that wrote the register, whatever that is; only then ask whether it is a v_cndmask.",
        ),
        Misconception(
            "loads_only",
            _loads_only,
            "Stores have a mask as well: a store without one writes past the end.",
        ),
        Misconception(
            "with_the_branch",
            _with_the_branch,
            "s_cbranch_execz jumps when no lane is left, which saves time and masks nothing: without it the same "
            "lanes would stay off. What has switched them off?",
        ),
        Misconception(
            "every_guard",
            _every_guard,
            "A guard also stands before a branch, where it decides about a loop. Only a guarded access to global "
            "memory is the mask at work.",
        ),
        Misconception(
            "every_choice",
            _every_choice,
            "v_cndmask_b32 chooses between any two values; tl.where becomes one too. It is the mask only where what it "
            "chooses is the offset of a buffer access: compare the registers.",
        ),
        Misconception(
            "choices_before_lanes",
            _choices_before_lanes,
            "A v_cndmask_b32 was taken for the mask before anybody asked whether lanes are switched off. It chooses "
            "between any two values; look for s_and_saveexec first, and then compare the registers of buffer accesses.",
        ),
        Misconception(
            "any_offset",
            _any_offset,
            "Every buffer access has an offset; only a chosen one is a mask. What wrote this one's register merely "
            "computes where the element is.",
        ),
        Misconception(
            "waves_of_64",
            _waves_of_64,
            "On chips with 32 lanes to a wavefront EXEC has 32 bits, and the instruction that switches lanes off ends "
            "otherwise. Look for the part of its name that both have.",
        ),
        Misconception(
            "the_accesses",
            _the_accesses,
            "On AMD these accesses know nothing of the mask. What happened before them, that they touch no memory for "
            "a masked lane?",
        ),
    ),
    hints=(
        "Ask three questions in turn. Is there an access to global memory with a guard before it? Is there an "
        "instruction that switches lanes off? Is there a buffer access whose offset was chosen?",
        'In text: a guarded access starts with "@" and holds ".global"; what switches lanes off starts with '
        '"s_and_saveexec". For an offset, go back from each access that starts with "buffer_" to the last instruction '
        "that wrote its second operand, whatever that is. Only then ask: does it start with v_cndmask?",
        "To split: text.partition(' ')[2].split(', ') are the operands of an instruction. As you go through the list, "
        "keep a dict: register -> index of the last instruction that wrote it. At a buffer access, look up "
        "operands[1]; after each instruction, note operands[0].",
    ),
    explanation=(
        "Three ways to the same masked access. A guard belongs to one instruction of PTX: skip it. EXEC belongs to the "
        "wavefront: from s_and_saveexec on, masked lanes do nothing, and their work is saved where no lane is left. A "
        "buffer has an end: v_cndmask_b32 moves the offset of a masked lane past it, and the lane goes on with a "
        "zero. A comparison with n alone masks nothing, and neither does a choice between two values."
    ),
)
