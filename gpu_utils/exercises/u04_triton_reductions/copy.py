"""04.copy: a copy that moves 16 bytes a lane, whatever the length."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.drawing import signed
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

BLOCK = 4096
"""Enough for 16 bytes a lane of four waves of 64, also where an element has two bytes."""

LONG = 16_384
"""From so many elements on accesses are counted. The counted lengths are little above a multiple of it, so that the
last block of every usual size is nearly empty, and what it costs does not hide what the others cost."""

_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    x = signed((case["n"] + case["start"],), generator)
    return {"x": x.to(_TYPES[case["dtype"]]), "start": case["start"]}


def copy_reference(x: Tensor, start: int) -> Tensor:
    """The elements themselves; float64 holds them exactly."""
    return x[start:].double()


def _call(answer: Callable[..., Any], inputs: Inputs) -> Any:
    # made here, because tensors reach an answer at an address of their own
    return answer(x=inputs["x"][inputs["start"] :])


def _bytes(case: Case) -> int:
    return int(case["n"] * _TYPES[case["dtype"]].itemsize)


def _most_bytes(case: Case) -> float:
    return 1.05 * _bytes(case) + 1024


def _most_accesses(case: Case) -> float:
    counted = case["n"] >= LONG and not case["start"]
    return 1.05 * 2 * math.ceil(_bytes(case) / 16) + 1024 if counted else math.inf


@triton.jit
def _kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, SLIP: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    offsets = first + tl.arange(0, BLOCK)
    mask = offsets < n
    if SLIP == "always masked":
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)
    elif SLIP == "moves whole blocks twice":
        if first + BLOCK <= n:
            tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)
    else:
        whole = first < n if SLIP == "asks for the start" else first + BLOCK <= n
        if whole:
            tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))
        elif SLIP != "no tail":
            if SLIP == "tail one long":
                mask = offsets <= n
            if SLIP == "tail of the block":
                mask = tl.arange(0, BLOCK) < n
            if SLIP == "tail read from the start":
                tl.store(out_ptr + offsets, tl.load(x_ptr + offsets - first, mask=mask), mask=mask)
            elif SLIP == "tail store unmasked":
                tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask))
            else:
                tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def _walking_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    whole = n // BLOCK * BLOCK
    for first in range(tl.program_id(0) * BLOCK, whole, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))
    offsets = whole + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def _one_program(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    _walking_kernel[(1,)](x, out, x.numel(), BLOCK=BLOCK)
    return out


def _answer(
    slip: str = "",
    block: int = BLOCK,
    programs: Callable[[int, int], int] = triton.cdiv,
    length: Callable[[int], int] = lambda n: n,
    dtype: torch.dtype | None = None,
) -> Callable[[Tensor], Tensor]:
    def answer(x: Tensor) -> Tensor:
        out = torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)
        n = length(x.numel())
        _kernel[(programs(n, block),)](x, out, n, BLOCK=block, SLIP=slip)
        return out

    return answer


def _as_words(x: Tensor) -> Tensor:
    return _answer("always masked")(x.view(torch.int64)).view(x.dtype)


def _of_a_clone(x: Tensor) -> Tensor:
    return _answer()(x.clone())


def _returns_nothing(x: Tensor) -> None:
    _answer()(x)


def _fresh(rng: random.Random) -> Case:
    n = LONG * rng.randrange(1, 4) + rng.randrange(1, 200, 2)
    return Case("a length nobody chose", n=n, dtype=rng.choice(sorted(_TYPES)), start=0)


EXERCISE = Exercise(
    id="04.copy",
    title="A copy, 16 bytes a lane",
    parameters=("x",),
    kind="kernel",
    inputs=_inputs,
    reference=copy_reference,
    tolerance=lambda case, inputs: EXACT,
    call=_call,
    cases=(
        Case("whole blocks", n=32_768, dtype="float32", start=0),
        Case("one element more than whole blocks", n=32_769, dtype="float32", start=0),
        Case("elements of two bytes, an odd number of them", n=49_155, dtype="bfloat16", start=0),
        Case("less than a block", n=777, dtype="float16", start=0),
        Case("no element", n=0, dtype="float32", start=0),
        Case("x[1:], which does not begin at a multiple of 16 bytes", n=5_001, dtype="float32", start=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": torch.zeros_like,
        "ones": torch.ones_like,
        "nan": lambda x: torch.full_like(x, math.nan),
        "x": lambda x: x,
    },
    limits=(
        Limit(
            "launches",
            "Launch your own kernel, copy_kernel[grid](...); two launches at most, one is enough.",
            at_least=lambda case: 1 if case["n"] else 0,
            at_most=lambda case: 2,
        ),
        Limit(
            "blocks",
            "Most of these programs find nothing to copy: a program takes BLOCK elements. Count blocks, not elements.",
            at_most=lambda case: max(2048.0, case["n"] / 64),
        ),
        Limit(
            "blocks",
            "Too few programs. A program runs on one SM or CU, so one program keeps one of them busy and leaves the "
            f"others idle: start one for each {LONG:,} elements at least.",
            at_least=lambda case: case["n"] // LONG,
        ),
        Limit(
            "global_load_bytes",
            "Each element is to be loaded once. Does a whole block also go through the masked path? Or has a program "
            "more lanes than elements, so that several of them load the same one?",
            at_most=_most_bytes,
        ),
        Limit(
            "global_store_bytes",
            "Each element is to be stored once. Does a whole block also go through the masked path?",
            at_most=_most_bytes,
        ),
        Limit(
            "global_lane_accesses",
            "The lanes move fewer than 16 bytes at a time. Triton makes an access as wide as it can prove: by the "
            "mask, by the pointers, and by how many elements a lane has at all. A block needs 16 bytes for each of its "
            "lanes, 128 on sm_80 and 256 on gfx942 with four waves.",
            at_most=_most_accesses,
        ),
    ),
    torch_may=(),
    misconceptions=(
        Misconception(
            "always_masked",
            _answer("always masked"),
            "The numbers are right, and all blocks pay for the last one. With a mask `offsets < n` Triton may join "
            "only so many elements as n is known to be a multiple of: one, when n is odd. A whole block needs no mask.",
        ),
        Misconception(
            "a_block_of_256",
            _answer(block=256),
            "The mask is out of the way, and a lane still moves one or two elements: with BLOCK = 256 there are no "
            "more for it, as four waves have 128 lanes on sm_80 and 256 on gfx942. Take a larger block.",
        ),
        Misconception(
            "a_block_of_1024",
            _answer(block=1024),
            "It fails only on gfx942, and only where an element has two bytes: 1024 of them, shared by 256 lanes, are "
            "8 bytes a lane. Work the block out from lanes, bytes a lane and bytes an element.",
        ),
        Misconception(
            "always_masked_in_small_blocks",
            _answer("always masked", block=256),
            "It is two things. A mask `offsets < n` with an odd n lets Triton prove nothing, so each element goes "
            "alone; and a BLOCK of 256 has no 16 bytes for each lane, even where all are whole.",
        ),
        Misconception(
            "moves_whole_blocks_twice",
            _answer("moves whole blocks twice"),
            "Whole blocks are moved, and then they are moved again: the masked copy stands behind the `if`, so it runs "
            "for each of them, too.",
        ),
        Misconception(
            "last_block_unmasked",
            _answer("asks for the start"),
            "The last block reaches past the end: it goes without a mask, or with one of another length. A block that "
            "begins inside need not end inside; compare its end with n.",
        ),
        Misconception(
            "no_tail",
            _answer("no tail"),
            "Whole blocks are copied, and what is left over never: new memory holds NaN during a check. The last block "
            "needs a path of its own in the kernel, and a program in the grid.",
        ),
        Misconception(
            "tail_one_long",
            _answer("tail one long"),
            "The mask of the last block lets one lane too many through: elements are numbered 0 to n - 1.",
        ),
        Misconception(
            "tail_store_unmasked",
            _answer("tail store unmasked"),
            "In the last block the load is masked and the store is not: it writes past the end of the result.",
        ),
        Misconception(
            "tail_of_the_block",
            _answer("tail of the block"),
            "The mask of the last block compares positions in the block with n, and nearly all of them are smaller. "
            "Compare the offsets in x.",
        ),
        Misconception(
            "tail_read_from_the_start",
            _answer("tail read from the start"),
            "The end of the result holds the beginning of x: the load of the last block starts at element 0 again.",
        ),
        Misconception(
            "first_block_only",
            _answer(programs=lambda n, block: 1),
            "Only the first block is copied. How many programs does the grid start, and does each of them know which "
            "one it is?",
        ),
        Misconception(
            "rounds_n_down",
            _answer("always masked", length=lambda n: n // 16 * 16),
            "n was rounded down to a multiple of 16. Those are copied at full width; up to 15 elements remain.",
        ),
        Misconception(
            "one_program_for_each_element",
            _answer(programs=lambda n, block: n),
            "The numbers are right, but the grid has a program for each element, and a program takes BLOCK of them: "
            "nearly all find nothing to do. Count blocks.",
        ),
        Misconception(
            "one_program",
            _one_program,
            "The numbers are right, and one program walks over all elements. It runs on one SM or CU, and the others "
            "have nothing to do: let each program take a block.",
        ),
        Misconception(
            "as_wider_words",
            _as_words,
            "view(torch.int64) needs a whole number of words, and n elements need not be one; x[1:] does not even "
            "begin at one. Keep the type, and let Triton join elements.",
        ),
        Misconception(
            "result_in_float32",
            _answer(dtype=torch.float32),
            "The result is float32 whatever x is: torch.empty makes that where no dtype is given. Ask for x.dtype.",
        ),
        Misconception(
            "copies_a_copy",
            _of_a_clone,
            "torch has copied x before your kernel did. x is contiguous as it is: give the kernel x itself.",
        ),
        Misconception(
            "torch_copies",
            lambda x: x.clone(),
            "The copy is torch's. Here it is your kernel's work: launch it with copy_kernel[grid](...).",
        ),
        Misconception(
            "returns_nothing",
            _returns_nothing,
            "The kernel ran, and nobody gets its result: end the launcher with return out.",
        ),
    ),
    hints=(
        "Only one program has a block that n cuts. Why should all of them carry its mask? And how many bytes has a "
        "lane, when BLOCK elements are shared by the lanes of four waves?",
        "`first + BLOCK <= n` is one truth value for a whole program, so a plain Python `if` with an `else` works in "
        "the kernel. Without a mask Triton knows that neighbours may be joined. 16 bytes a lane for 256 lanes are 4096 "
        "bytes: how many elements of two bytes is that?",
        "if first + BLOCK <= n: tl.store(out_ptr + offsets, tl.load(x_ptr + offsets)); else: the same with "
        "mask=offsets < n, in load and store. BLOCK = 4096, the grid is (triton.cdiv(n, BLOCK),), and the result is "
        "torch.empty_like(x).",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "Triton joins neighbouring elements of a lane into one access where it can prove that they are all there and "
        "that the address is a multiple of the width. A pointer and an n that are multiples of 16 are seen at the "
        "launch. With any other n the mask may end inside every group of four as far as the compiler knows, so each "
        "element goes alone. The branch asks once for a whole program; behind it there is no mask, and the proof "
        "holds. x[1:] stays right and its loads narrow: its address is no multiple of 16, and nothing can change that."
    ),
)
