"""03.inline_asm: a line of PTX, fenced behind a test of the target, and its AMD twin."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.backends import record_launches
from gpu_utils.compiler import compile_for
from gpu_utils.compiler.quiet import ToolOutput, kept_output
from gpu_utils.compiler.triton import first_error
from gpu_utils.errors import CompileFailed, W2WError
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

BLOCK = 512
"""Given to the learner."""

BIAS = 1024.0
"""0x6400 as float16, whose lowest bit is worth 1: a byte in its low half adds itself."""

_PERMUTE = re.compile(
    r"begin inline asm((?!end inline asm).)*\bprmt\.b32|#ASMSTART((?!#ASMEND).)*\bv_perm_b32", re.DOTALL
)


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    words = torch.randint(-(2**31), 2**31, (case["n"],), generator=generator, dtype=torch.int64)
    return {"words": words.to(torch.int32)}


def inline_asm_reference(words: Tensor) -> dict[str, Any]:
    """1024 + each of the four bytes of each word, the lowest byte first, exact in float16."""
    halves = words.contiguous().view(torch.uint8).view(-1, 4).to(torch.float16) + BIAS
    return {"halves": halves, "inline assembly": "in the kernel"}


def _call(answer: Callable[..., Tensor], inputs: Inputs) -> dict[str, Any]:
    """The result, and whether the machine code of the launched kernel holds the instruction in inline assembly.

    A kernel that does not build raises CompileFailed with the assembler's first complaint, and nothing else is printed.
    """
    here = triton.runtime.driver.active.get_current_target()
    target = here.arch if here.backend == "hip" else f"sm_{here.arch}"
    output = ToolOutput()
    with record_launches() as launches:
        try:
            with kept_output() as output:
                halves = answer(**inputs)
        except W2WError:
            raise
        except Exception as problem:
            if "error" not in output.text:
                raise
            raise CompileFailed(f"the kernel for {target}: {first_error(problem, output.text)}") from problem
    texts = [compile_for(launch.kernel, target, launch.args, **launch.kwargs).asm for launch in launches]
    where = "in the kernel" if any(map(_PERMUTE.search, texts)) else "not in the kernel"
    return {"halves": halves, "inline assembly": where if launches else "no kernel was launched"}


_PTX = ("prmt.b32 $0, $1, $2, 0x4140;", "prmt.b32 $0, $1, $2, 0x4342;", "=r,r,r")


@triton.jit(do_not_specialize=["n"])
def _kernel(
    words_ptr,
    halves_ptr,
    n,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    CONSTRAINTS: tl.constexpr,
    LOW_SELECTOR: tl.constexpr,
    HIGH_SELECTOR: tl.constexpr,
    WORD_FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Two permutes of a word and the magic bytes; without texts (LOW is "") by shifts."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    words = tl.load(words_ptr + offsets, mask=mask)
    magic = tl.full((BLOCK,), 0x64646464, tl.int32)
    if LOW == "":
        low = 0x64006400 | (words & 0xFF) | ((words & 0xFF00) << 8)
        high = 0x64006400 | ((words >> 16) & 0xFF) | ((words >> 8) & 0xFF0000)
    elif LOW_SELECTOR == 0:
        a, b = (words, magic) if WORD_FIRST else (magic, words)
        low = tl.inline_asm_elementwise(LOW, CONSTRAINTS, [a, b], dtype=tl.int32, is_pure=True, pack=1)
        high = tl.inline_asm_elementwise(HIGH, CONSTRAINTS, [a, b], dtype=tl.int32, is_pure=True, pack=1)
    else:
        a, b = (words, magic) if WORD_FIRST else (magic, words)
        low = tl.inline_asm_elementwise(LOW, CONSTRAINTS, [a, b, LOW_SELECTOR], tl.int32, is_pure=True, pack=1)
        high = tl.inline_asm_elementwise(HIGH, CONSTRAINTS, [a, b, HIGH_SELECTOR], tl.int32, is_pure=True, pack=1)
    tl.store(halves_ptr + 2 * offsets, low, mask=mask)
    tl.store(halves_ptr + 2 * offsets + 1, high, mask=mask)


def _launch(
    words: Tensor,
    low: str = "",
    high: str = "",
    constraints: str = "",
    selectors: tuple[int, int] = (0, 0),
    word_first: bool = True,
    as_words: bool = True,
) -> Tensor:
    n = words.numel()
    halves = torch.empty(n, 4, dtype=torch.float16, device=words.device)
    out = halves.view(torch.int32) if as_words else halves
    _kernel[(triton.cdiv(n, BLOCK),)](words, out, n, low, high, constraints, *selectors, word_first, BLOCK=BLOCK)
    return halves


def _ptx(words: Tensor) -> Tensor:
    return _launch(words, *_PTX)


def _amd(
    text: str = "v_perm_b32 $0, $1, $2, $3",
    constraints: str = "=v,v,v,v",
    selectors: tuple[int, int] = (0x04010400, 0x04030402),
    word_first: bool = False,
    is_amd: Callable[[Any], bool] = lambda target: target.backend == "hip",
    as_words: bool = True,
) -> Callable[[Tensor], Tensor]:
    """An answer that fences; the right one unless something is changed. Selectors may stand in the text: "{}"."""

    def answer(words: Tensor) -> Tensor:
        if not is_amd(triton.runtime.driver.active.get_current_target()):
            return _launch(words, *_PTX, as_words=as_words)
        if "{}" in text:
            low, high = (text.format(f"{selector:#010x}") for selector in selectors)
            return _launch(words, low, high, constraints, word_first=word_first)
        return _launch(words, text, text, constraints, selectors, word_first, as_words)

    return answer


def _fresh(rng: random.Random) -> Case:
    return Case("a length nobody chose", n=rng.randrange(1, 4 * BLOCK))


EXERCISE = Exercise(
    id="03.inline_asm",
    title="Inline PTX behind a fence, and its AMD twin",
    parameters=("words",),
    kind="kernel",
    targets=("sm_80", "gfx942", "gfx1100", "gfx950"),
    machine_code=True,
    inputs=_inputs,
    reference=inline_asm_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: torch.float16,
    call=_call,
    cases=(
        Case("whole blocks: here memory transactions are counted", n=2 * BLOCK),
        Case("a tail", n=BLOCK + 77),
        Case("one word", n=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda words: torch.zeros(words.numel(), 4, dtype=torch.float16, device=words.device),
        "ones": lambda words: torch.ones(words.numel(), 4, dtype=torch.float16, device=words.device),
        "nan": lambda words: torch.full((words.numel(), 4), float("nan"), dtype=torch.float16, device=words.device),
        "the input": lambda words: words,
    },
    limits=(
        Limit(
            "global_sectors_per_ideal",  # only virtual GPUs count it, so all four targets run on any machine
            "Each word gives two neighbouring words of result: store them at 2 * offset and 2 * offset + 1.",
            at_most=lambda case: 3.0 if case["n"] % BLOCK == 0 else float("inf"),
        ),
    ),
    misconceptions=(
        Misconception(
            "no_fence",
            _ptx,
            "The PTX reached AMD's assembler: right on sm_80, refused on every gfx target. The launcher must tell the "
            "kernel its backend (driver.active.get_current_target().backend; torch.version.hip only says what torch "
            "was built for), and the kernel must choose by it.",
        ),
        Misconception(
            "one_amd_target",
            _amd(is_amd=lambda target: target.arch == "gfx942"),
            "The fence knows gfx942 and takes every other AMD target for NVIDIA. v_perm_b32 exists on all of them: ask "
            "for the backend.",
        ),
        Misconception(
            "constraints_of_ptx",
            _amd(constraints="=r,r,r,r"),
            'For AMD, "r" means a scalar register, one value for the whole wave, and v_perm_b32 wants vector '
            "registers. Which letter stands for those?",
        ),
        Misconception(
            "constraints_in_floats",
            _amd(constraints="=f,f,f,f"),
            'AMD\'s compiler has no constraint "f": it cannot allocate a register, and outside of this course it '
            "ends the process. Vector registers have one letter, whatever they hold.",
        ),
        Misconception(
            "literal_selector",
            _amd("v_perm_b32 $0, $1, $2, {}", "=v,v,v"),
            "gfx1100 takes a 32-bit literal in this instruction, gfx9 does not. Give the selector as one more operand.",
        ),
        Misconception(
            "sources_of_ptx",
            _amd(word_first=True),
            "The sources stand in PTX's order. v_perm_b32 numbers the bytes of its second source 0 to 3, and those of "
            "its first 4 to 7.",
        ),
        Misconception(
            "selector_of_ptx",
            _amd(selectors=(0x4140, 0x4342)),
            "This selector is PTX's: four digits of 4 bits. v_perm_b32 reads four bytes, one for each byte of the "
            "result.",
        ),
        Misconception(
            "selector_backwards",
            _amd(selectors=(0x00040104, 0x02040304)),
            "The bytes of the selector stand in reverse: its lowest byte chooses the lowest byte of the result.",
        ),
        Misconception(
            "stores_into_float16",
            _amd(as_words=False),
            "Half of the result was never written. The kernel stores 32-bit words, and a pointer to float16 makes a "
            "number of each and steps by two bytes: pass the same memory as int32.",
        ),
        Misconception(
            "without_assembly",
            _launch,
            "The numbers are right, and shifts are often the better port. Here the exercise is the fence: use prmt.b32 "
            "on NVIDIA and v_perm_b32 on AMD.",
        ),
        Misconception(
            "with_torch",
            lambda words: words.view(torch.uint8).view(-1, 4).to(torch.float16) + BIAS,
            "The numbers are right, but torch made them. Launch unpack_kernel.",
        ),
    ),
    hints=(
        "The kernel cannot ask what it is compiled for; the launcher can. Give the kernel a tl.constexpr parameter, "
        "and let an `if` on it choose the lines: the other side is then never compiled.",
        'triton.runtime.driver.active.get_current_target().backend is "cuda" or "hip". On AMD write '
        '"v_perm_b32 $0, $1, $2, $3" with the constraints "=v,v,v,v", and three operands: the magic bytes first, then '
        "the words, then the selector.",
        "v_perm_b32 with sources (magic, words): bytes 0 to 3 are those of the word, 4 to 7 are 0x64. The low pair is, "
        "from its lowest byte up: byte 0, 4, 1, 4, so the selector is 0x04010400. The high pair takes 2, 4, 3, 4.",
    ),
    explanation=(
        "A branch on a tl.constexpr is decided when the kernel is compiled, so each target sees its own instruction "
        "only. prmt and v_perm do the same work in different words: prmt counts bytes from its first source and takes "
        "four 4-bit selectors, v_perm_b32 counts from its second source and takes four bytes. The result is exact, "
        "because 1024 to 1279 are whole numbers in float16: 0x6400 is 1024, and its lowest bits count ones. A permute "
        "may stand in inline assembly without care; an instruction whose result needs a wait (v_exp_f32 on gfx942) may "
        "not, because LLVM does not look inside the text."
    ),
)
