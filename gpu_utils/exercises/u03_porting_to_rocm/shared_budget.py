"""03.shared_budget: the deepest software pipeline whose tiles fit the shared memory (LDS) of a target."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.compiler import compile_for
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

MOST_STAGES = 8
"""The answer is at most this: no target gains from more."""

_TYPES = {1: "i8", 2: "fp16", 4: "fp32"}

_WARPS = {"sm_100": 8}
_MANY_WARPS = 16
"""The bytes do not depend on it (tested), and with 16 waves each has little code, which compiles quickly.

On sm_100, Triton 3.7.1 takes tcgen05.mma with 4 or 8 warps, and with 16 the older mma.sync, which keeps fewer tiles."""


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, N, K, OUT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """C = A B for whole tiles: A (M, K), B (K, N), C (M, N) row by row; sums in OUT."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * N + cols[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=OUT)
    for _ in range(0, K, BLOCK_K):
        total = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), total, out_dtype=OUT)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total.to(c_ptr.dtype.element_ty))


@functools.cache
def shared_bytes(target: str, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, bytes_per_value: int, num_stages: int) -> int:
    """Bytes of shared memory that a block of matmul_kernel asks for on `target`, from the compiler itself.

    bytes_per_value: 1 (int8), 2 (float16) or 4 (float32). The kernel is compiled once and kept by Triton's cache.
    """
    kind = _TYPES[bytes_per_value]
    signature = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), f"*{kind}:16") | {"N": "i32:16", "K": "i32:16"}
    blocks = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    constexprs = {"OUT": tl.int32 if kind == "i8" else tl.float32, **blocks}
    return compile_for(
        matmul_kernel,
        target,
        signature=signature,
        constexprs=constexprs,
        num_warps=_WARPS.get(target, _MANY_WARPS),
        num_stages=num_stages,
    ).shared


def _inputs(case: Case, _generator: torch.Generator) -> Inputs:
    names = ("target", "BLOCK_M", "BLOCK_N", "BLOCK_K", "bytes_per_value")
    return {name: case[name] for name in names}


def shared_budget_reference(target: str, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, bytes_per_value: int) -> int:
    """The answer, found by compiling: one depth must fit and the next must not."""
    sizes = (BLOCK_M, BLOCK_N, BLOCK_K, bytes_per_value)
    limit = TARGETS[target].shared_per_block
    stages = _deepest()(target, *sizes)  # where to look first; the compiler decides
    while stages < MOST_STAGES and shared_bytes(target, *sizes, stages + 1) <= limit:
        stages += 1
    while stages and shared_bytes(target, *sizes, stages) > limit:
        stages -= 1
    return stages


def _amd(a: int, b: int, stages: int) -> int:
    return max(a, b) if stages == 1 else (stages - 1) * (a + b)


def _ampere(a: int, b: int, stages: int) -> int:
    return max(1, stages - 1) * (a + b)


def _hopper(a: int, b: int, stages: int) -> int:
    return stages * (a + b)


def _hopper_but_one(a: int, b: int, stages: int) -> int:
    return _amd(a, b, 1) if stages == 1 else _hopper(a, b, stages)


Rule = Callable[[int, int, int], int]


def _own_rule(target: Target) -> Rule:
    if target.vendor == "amd":
        return _amd
    return _hopper if target.name in ("sm_90", "sm_100") else _ampere


def _deepest(
    rule: Callable[[Target], Rule] = _own_rule,
    limit: Callable[[Target], int] = lambda target: target.shared_per_block,
    a_counts: bool = True,
    b_counts: bool = True,
    width: Callable[[int], int] = lambda bytes_per_value: bytes_per_value,
    least: int = 0,
    most: Callable[[Target], int] = lambda target: MOST_STAGES,
) -> Callable[..., int]:
    """A way to answer: the right one, with some of its parts changed."""

    def answer(target: str, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, bytes_per_value: int) -> int:
        limits = TARGETS[target]
        a = BLOCK_M * BLOCK_K * width(bytes_per_value) * a_counts
        b = BLOCK_K * BLOCK_N * width(bytes_per_value) * b_counts
        fits = (s for s in range(1, most(limits) + 1) if rule(limits)(a, b, s) <= limit(limits))
        return max(fits, default=least)

    return answer


_TILES = ((128, 128, 64), (64, 128, 64), (128, 64, 128), (128, 256, 64), (64, 256, 64))
_FRESH_TARGETS = ("sm_80", "sm_89", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950")


def _fresh(rng: random.Random) -> Case:
    BLOCK_M, BLOCK_N, BLOCK_K = rng.choice(_TILES)
    return Case(
        "a tile and a target nobody chose",
        target=rng.choice(_FRESH_TARGETS),
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        bytes_per_value=2,
    )


def _case(why: str, target: str, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, bytes_per_value: int = 2) -> Case:
    sizes = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "bytes_per_value": bytes_per_value}
    return Case(why, target=target, **sizes)


EXERCISE = Exercise(
    id="03.shared_budget",
    title="The deepest pipeline that fits shared memory and LDS",
    parameters=("target", "BLOCK_M", "BLOCK_N", "BLOCK_K", "bytes_per_value"),
    kind="host",
    inputs=_inputs,
    reference=shared_budget_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    seconds=60.0,
    cases=(
        _case("an H100's tile on A100: copies run by another rule there", "sm_80", 128, 128, 64),
        _case("the same tile on the H100 itself", "sm_90", 128, 128, 64),
        _case("the same tile on B200, which keeps both operands in shared memory too", "sm_100", 128, 128, 64),
        _case("the same tile on MI300X: it fills the 64 KiB to the last byte", "gfx942", 128, 128, 64),
        _case("the same tile on MI355X: 160 KiB, by AMD's rule", "gfx950", 128, 128, 64),
        _case("a wide tile on RX 7900 XTX: the WGP has 128 KiB, a block may have half", "gfx1100", 64, 128, 64),
        _case("so small a tile on the H100 that 8 is the answer", "sm_90", 64, 128, 32, 4),
        _case("int8, where every value takes one byte: more than 8 would fit", "gfx942", 64, 64, 64, 1),
        _case("A and B fit one after the other and not side by side", "gfx942", 128, 128, 256),
        _case("the statement's example", "gfx942", 64, 64, 256),
        _case("the example's tile on the H100", "sm_90", 64, 64, 256),
        _case("one operand alone is too large: no depth loads", "gfx942", 256, 64, 256),
        _case("the other operand alone is too large", "gfx942", 64, 256, 256),
        _case(
            "float32 takes four bytes; on L4 two stages fit, as one pair lives in registers", "sm_89", 128, 128, 64, 4
        ),
        _case("on L4 not even one stage", "sm_89", 128, 128, 256),
    ),
    fresh=_fresh,
    trivial={
        "zero": lambda **sizes: 0,
        "one": lambda **sizes: 1,
        "two": lambda **sizes: 2,
        "nan": lambda **sizes: math.nan,
        "the input": lambda **sizes: sizes["BLOCK_K"],
    },
    misconceptions=(
        Misconception(
            "hopper_everywhere",
            _deepest(rule=lambda target: _hopper),
            "This counts one copy of both tiles for every stage. That is so on sm_90; where the next tile waits in "
            "registers or is copied while the last one is read, a pipeline of S stages keeps fewer copies in memory.",
        ),
        Misconception(
            "hopper_but_for_one_stage_on_amd",
            _deepest(rule=lambda target: _hopper_but_one if target.vendor == "amd" else _hopper),
            "One stage is right, and from two on this counts a pair of tiles for every stage on every chip. That is so "
            "where the matrix instruction reads shared memory itself. Where is the pair in use on the others?",
        ),
        Misconception(
            "hopper_on_nvidia",
            _deepest(rule=lambda target: _amd if target.vendor == "amd" else _hopper),
            "Right on AMD, sm_90 and sm_100. sm_80 and sm_89 come from the same vendor and have no wgmma: look at "
            "their row of the table. It is the matrix instruction that decides, not the vendor.",
        ),
        Misconception(
            "hopper_on_amd",
            _deepest(rule=lambda target: _hopper if target.vendor == "amd" else _own_rule(target)),
            "Right on NVIDIA. On AMD the pair in use has moved to registers, so a pipeline of S stages keeps fewer "
            "than S pairs in LDS: compare the last row of the table with that of sm_90.",
        ),
        Misconception(
            "sm_100_as_text",
            _deepest(rule=lambda target: _ampere if target.name == "sm_100" else _own_rule(target)),
            'Only sm_100 is wrong: it gets the rule of sm_80. As text "sm_100" comes before "sm_90"; compare names, or '
            "the number behind sm_.",
        ),
        Misconception(
            "amd_everywhere",
            _deepest(rule=lambda target: _ampere if target.vendor == "nvidia" else _amd),
            "On sm_90 this is one stage too deep: wgmma reads A and B out of shared memory itself, so the tiles in use "
            "take room as well as those on their way.",
        ),
        Misconception(
            "forgets_an_operand",
            _deepest(b_counts=False),
            "Only A is counted. Each stage holds a tile of A (BLOCK_M x BLOCK_K) and one of B (BLOCK_K x BLOCK_N).",
        ),
        Misconception(
            "counts_halves_of_float32",
            _deepest(width=lambda bytes_per_value: min(bytes_per_value, 2)),
            "float32 is counted as two bytes a value. The budget is in bytes: use bytes_per_value.",
        ),
        Misconception(
            "counts_float16",
            _deepest(width=lambda bytes_per_value: 2),
            "Every value is counted as two bytes. The budget is in bytes: use bytes_per_value.",
        ),
        Misconception(
            "counts_values",
            _deepest(width=lambda bytes_per_value: 1),
            "The values are counted, not their bytes: multiply by bytes_per_value.",
        ),
        Misconception(
            "limit_of_the_unit",
            _deepest(limit=lambda target: target.shared_per_unit),
            "This is what an SM, CU or WGP has for all of its blocks. One block may have less on some targets.",
        ),
        Misconception(
            "limit_of_the_h100",
            _deepest(limit=lambda target: TARGETS["sm_90"].shared_per_block),
            "227 KiB is the limit of sm_90. Look up the limit of the target at hand; a kernel that asks for more "
            "compiles, and fails when it is loaded.",
        ),
        Misconception(
            "limit_of_the_mi300x",
            _deepest(limit=lambda target: TARGETS["gfx942"].shared_per_block),
            "64 KiB is the limit of gfx942. It is safe everywhere and leaves most of a larger memory unused: look up "
            "the limit of the target at hand.",
        ),
        Misconception(
            "thousand_bytes",
            _deepest(limit=lambda target: target.shared_per_block // 1024 * 1000),
            "A limit in KiB counts 1024 bytes each; tiles are powers of two, so 64 KiB can be filled to the last byte.",
        ),
        Misconception(
            "needs_both_at_once",
            _deepest(rule=lambda target: _ampere if target.vendor == "amd" else _own_rule(target)),
            "With one stage there is no pipeline, and AMD's backend passes A and B through the same LDS, one after "
            "the other: the larger of the two decides.",
        ),
        Misconception(
            "one_after_the_other_everywhere",
            _deepest(rule=lambda target: _amd if _own_rule(target) is _ampere else _own_rule(target)),
            "Where A and B do not fit together, you still allow one stage, as if they went through the same bytes one "
            "after the other. Only AMD's backend does that; on sm_80 and sm_89 one stage keeps both.",
        ),
        Misconception(
            "no_cap_on_amd",
            _deepest(most=lambda target: 99 if target.vendor == "amd" else MOST_STAGES),
            "The answer is 8 at most, on every target.",
        ),
        Misconception(
            "at_least_one",
            _deepest(least=1),
            "When even one stage does not fit, no depth loads. What should the function say then?",
        ),
    ),
    hints=(
        "Write the bytes of one tile of A and one of B, then how many such pairs S stages keep in memory on each kind "
        "of target. One step from a stage to the next adds a pair: how many pairs are there with one stage?",
        "Pairs in memory: S on sm_90 and sm_100; max(1, S - 1) on sm_80 and sm_89; S - 1 on AMD from S = 2 on. With "
        "S = 1, AMD needs only the larger of the two tiles. The limit is TARGETS[target].shared_per_block, in bytes.",
        "Let needs(stages) return the bytes for one depth, choosing the rule by TARGETS[target].vendor and the name of "
        "the target. Then max((s for s in range(1, 9) if needs(s) <= limit), default=0).",
    ),
    explanation=(
        "A stage is a pair of tiles on its way to the matrix units. On sm_90 the matrix instruction reads both out of "
        "shared memory, so S stages hold S pairs. On sm_80 and on AMD the pair in use has moved to registers, so S "
        "stages hold S - 1. The check compiled a matmul for the target with your depth and with one more, and read "
        "from the compiler what a block asks for. A list of configurations that was tuned on an H100 must be filtered "
        "by such a rule before it meets 64 KiB, or the tuner dies when a kernel is loaded."
    ),
)
