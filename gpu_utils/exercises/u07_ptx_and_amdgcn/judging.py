"""Judging machine code that an answer returned as text: assembled, executed under the sanitizers, compared, counted.

It runs on the grader's side: an answer returns text, and never sees the numbers that its text computes with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import W2WError
from gpu_utils.exercises.u07_ptx_and_amdgcn import on_device
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import COMMENTS, assembled
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.isa import Launch

STEP_LIMIT = 300
"""Rounds of one loop after which a launch ends: the exercises need a few dozen."""

MOST_CHARACTERS = 60_000
"""Of a text: the exercises need two thousand. A decoder takes seconds for a megabyte of instructions."""

Arguments = Callable[[], tuple[list[Any], Tensor]]
"""Makes the arguments of a launch, and says which of them is the output: filled with NaN before."""

_UNWRITTEN = re.compile(r"^[ \t]*#[ \t]*error\s+\"?(\d\d\.\w+ is yours to write)", re.MULTILINE)


def written(answer: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    """`Exercise.call`: what the answer returns. Raises NotImplementedError while the lab's `#error` is in a text."""
    value = answer(**inputs)
    for text in value.values() if isinstance(value, dict) else [value]:
        if isinstance(text, str) and (found := _UNWRITTEN.search(text)):
            raise NotImplementedError(found[1])
    return value


def too_long(text: str) -> Difference | None:
    """A text of megabytes, before anything reads it."""
    if len(text) <= MOST_CHARACTERS:
        return None
    return Difference("characters", f"the text has {len(text):,} characters, expected at most {MOST_CHARACTERS:,}")


def unreadable(text: str) -> Difference | None:
    """A character that no assembler takes."""
    if found := re.search(r"[^\t-\r -~]", text):
        line = text[: found.start()].count("\n") + 1
        detail = (
            f"line {line} of the text holds the character U+{ord(found[0]):04X}; outside of comments use ASCII alone"
        )
        return Difference("character", detail)
    return None


def plain_comments(text: str, vendor: str) -> str:
    """The text with `?` for what is not ASCII in its comments: ptxas refuses it there, too.

    >>> plain_comments("add.f32 %f1, %f1, %f2; // größer", "nvidia")
    'add.f32 %f1, %f1, %f2; // gr??er'
    """
    return COMMENTS[vendor].sub(lambda found: re.sub(r"[^\t-\r -~]", "?", found[0]), text)


def judged(
    text: str,
    target: str,
    name: str,
    grid: int,
    block: int,
    arguments: Arguments,
    expected: Tensor,
    tolerance: Tolerance,
    cost: Callable[[Launch], Difference | None] = lambda launch: None,
    sanitize: Sequence[str] = ("racecheck", "waitcheck"),
    failing: Callable[[W2WError], Difference | None] = lambda problem: None,
) -> Difference | None:
    """What is wrong with a kernel, or None.

    text       a module for `target`, which its vendor's assembler must take; name: of its kernel
    arguments  makes the tensors of one launch
    expected   what the output must hold, in float64
    cost       what is counted of a launch that was right
    sanitize   what the virtual GPU looks for besides: see docs/sanitizers.md
    failing    what an exercise itself says of an error; None leaves the error's own words

    A PTX kernel that is right on the virtual GPU runs on an NVIDIA GPU of this machine too.
    """
    if found := too_long(text):
        return found
    text = plain_comments(text, TARGETS[target].vendor)
    if found := unreadable(text):
        return found
    try:
        assembled(text, target)
        args, output = arguments()
        with virtual_gpu(target, strict=True, step_limit=STEP_LIMIT, sanitize=sanitize) as gpu:
            launch = gpu.load(text).launch(name, grid, block, args)
    except W2WError as problem:
        said = failing(problem) or Difference(f"error:{type(problem).__name__}", _without_triton(str(problem)))
        return Difference(said.kind, f"on the virtual {target}: {said.detail}")
    except MemoryError:
        return Difference("memory", f"on the virtual {target}: the kernel asks for more memory than this machine has")
    except ValueError as problem:  # a number, or an operand, that the assembler takes and the virtual GPU does not
        detail = f"the virtual {target} cannot read this text ({problem}); write numbers as 3 or 0x3"
        return Difference("unread", detail)
    if found := _differs(expected, output, tolerance, f"the virtual {target}"):
        return found
    if found := cost(launch):
        return found
    if TARGETS[target].vendor == "nvidia" and (chip := on_device.chip()):
        args, output = arguments()
        output = on_device.launch(text, name, grid, block, args, output)
        return _differs(expected, output, tolerance, chip)
    return None


def _without_triton(said: str) -> str:
    """A sanitizer's words without what it advises for kernels in Triton."""
    return said.replace(" (tl.atomic_add updates in one step)", "").replace("; is the mask right?", "")


def _differs(expected: Tensor, output: Tensor, tolerance: Tolerance, where: str) -> Difference | None:
    found = compare(expected, output, tolerance, None)
    return Difference(found.kind, f"on {where}: {found.detail}") if found else None
