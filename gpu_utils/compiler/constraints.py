"""Inline assembly whose register constraints a target does not know, found before LLVM sees it.

LLVM ends the process when it cannot allocate a register for a constraint ("couldn't allocate output register for
constraint 'f'", mamba #1018, sglang #34351). Inside `checked_constraints()` a kernel with such a constraint raises
CompileFailed instead.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from gpu_utils.errors import CompileFailed

_LETTERS = {
    "cuda": ("NVIDIA", "bchrlfd", '"r" (32-bit integers), "f" (float32) or "h", "l", "d"'),
    "hip": ("AMD", "vsar", '"v" (vector registers) or "s" (scalar registers)'),
}
"""Backend -> vendor, the letters with which LLVM compiles for it (measured with Triton 3.7.1), and what to try."""

_INLINE = re.compile(r'elementwise_inline_asm "[^\n]*?" \{constraints = "([^"]*)"|constraints = "([^"]*)"')


def refuse_foreign_constraints(ir: str, target: Any) -> None:
    """Raise CompileFailed when a constraint in Triton's own IR is none of the target's; `target` is a GPUTarget."""
    vendor, letters, advice = _LETTERS[target.backend]
    for found in _INLINE.finditer(ir):
        for constraint in (found[1] or found[2]).split(","):
            letter = constraint.strip().lstrip("=&+%")
            if not letter or letter[0] in "~{" or letter.isdigit() or letter in letters:
                continue
            raise CompileFailed(
                f"inline assembly with the constraint {constraint.strip()!r} is compiled for {vendor} ({target.arch}), "
                f"which has no such registers; expected {advice}: fence the line behind a test of the target: "
                f"couldn't allocate a register for constraint '{letter}'"
            )


@contextlib.contextmanager
def checked_constraints() -> Iterator[None]:
    """Kernels that Triton compiles in the block are checked; what comes from its cache was compiled before."""
    from triton.compiler.compiler import ASTSource

    make_ir = ASTSource.make_ir

    def make_checked_ir(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        module = make_ir(source, target, *args, **kwargs)
        text = str(module)
        if "elementwise_inline_asm" in text:
            refuse_foreign_constraints(text, target)
        return module

    ASTSource.make_ir = make_checked_ir
    try:
        yield
    finally:
        ASTSource.make_ir = make_ir
