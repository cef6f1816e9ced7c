"""Calling an answer whose kernel must hold inline assembly: its result, and what its machine code holds of it.

It goes along to where the answer runs, and knows no reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from gpu_utils.backends import record_launches
from gpu_utils.backends.virtual import SANITIZERS
from gpu_utils.compiler import compile_for
from gpu_utils.compiler.constraints import checked_constraints
from gpu_utils.compiler.quiet import ToolOutput, kept_output
from gpu_utils.compiler.triton import first_error
from gpu_utils.errors import CompileFailed, W2WError
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import COMMENTS
from gpu_utils.grading.exercise import Inputs
from gpu_utils.virtual import virtual_gpu

FOUND = "inline assembly"
"""The part of a result that says what was found."""

_BLOCK = re.compile(r"begin inline asm(.*?)// end inline asm|#ASMSTART(.*?);;#ASMEND", re.DOTALL)

Says = Callable[[Sequence[str], str], str]
"""What there is to say of the texts of inline assembly in the machine code of all launches, and of what is around."""


def with_assembly(part: str, says: Says, targets: Sequence[str]) -> Callable[[Callable[..., Any], Inputs], Any]:
    """`Exercise.call` of a kernel with inline assembly for one vendor.

    part     name of the answer's own result, beside FOUND
    says     what comes back as FOUND
    targets  where the assembly is understood. An answer that is called on another GPU, a real one, is called on the
             first of these as a virtual GPU instead

    A kernel that does not build raises CompileFailed with the assembler's first complaint, and nothing else is printed.
    """

    def call(answer: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
        here = _target()
        if not _foreign(here, targets):
            return _called(answer, inputs, part, says)
        on_cpu = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in inputs.items()}
        with virtual_gpu(targets[0], sanitize=tuple(SANITIZERS)):
            value = _called(answer, on_cpu, part, says)
        if isinstance(result := value[part], Tensor) and result.is_cpu:  # else it says that it is elsewhere
            value[part] = result.cuda()
        return value

    return call


def _target() -> str:
    here = triton.runtime.driver.active.get_current_target()
    return here.arch if here.backend == "hip" else f"sm_{here.arch}"


def _foreign(here: str, targets: Sequence[str]) -> bool:
    """Whether a real GPU is none that the assembly is for: of the other vendor, or older than all of the targets."""
    if not torch.cuda.is_available():
        return False
    if here.startswith("sm_") != targets[0].startswith("sm_"):
        return True
    return here.startswith("sm_") and int(here[3:]) < min(int(target[3:]) for target in targets)


def _called(answer: Callable[..., Any], inputs: Inputs, part: str, says: Says) -> dict[str, Any]:
    target = _target()
    output = ToolOutput()
    with record_launches() as launches, checked_constraints():
        try:
            with kept_output() as output:
                value = answer(**inputs)
        except W2WError:
            raise
        except Exception as problem:
            if "error" not in output.text:
                raise
            raise CompileFailed(f"the kernel for {target}: {first_error(problem, output.text)}") from problem
    built = [compile_for(launch.kernel, target, launch.args, **launch.kwargs) for launch in launches]
    texts = [one.asm for one in built if "elementwise_inline_asm" in one.stages["ttir"]]  # Triton's own casts have some
    blocks = [found[1] or found[2] for text in texts for found in _BLOCK.finditer(text)]
    comment = COMMENTS["nvidia" if target.startswith("sm_") else "amd"]
    found = [comment.sub("", block) for block in blocks]
    around = "\n".join(comment.sub("", _BLOCK.sub("", text)) for text in texts)
    return {part: value, FOUND: says(found, around) if launches else "no kernel was launched"}
