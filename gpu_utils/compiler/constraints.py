"""Inline assembly whose register constraints do not fit, found before LLVM sees it.

LLVM ends the process when it cannot allocate a register for a constraint ("couldn't allocate output register for
constraint 'f'", mamba #1018, sglang #34351), when there are more or fewer constraints than operands, and when the text
names an operand that is not there. Inside `checked_constraints()` a kernel with such a mistake raises CompileFailed
instead.
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


_OPERATION = re.compile(
    r'elementwise_inline_asm "(?P<text>[^"\n]*)" '
    r'\{constraints = "(?P<constraints>[^"]*)", packed_element = (?P<pack>\d+) '
    r":[^}\n]*\} [^\n]*? : (?P<arguments>[^\n]*) -> (?P<results>[^\n]*?)(?: loc\(|$)",
    re.MULTILINE,
)
_ELEMENT = re.compile(r"!tt\.ptr<|(?:x|^|<)(?:bf|f|i)(?P<bits>\d+)\w*>?$")


def refuse_wrong_operands(ir: str) -> None:
    """Raise CompileFailed when inline assembly has too many or too few constraints, or names an operand it has not."""
    for found in _OPERATION.finditer(ir):
        pack, said = int(found["pack"]), [one.strip() for one in found["constraints"].split(",")]
        expected = tuple(_registers(found[types], pack) for types in ("results", "arguments"))
        results = sum(one.startswith("=") for one in said)
        given = results, sum(not one.startswith(("=", "~")) for one in said)
        if given != expected:
            raise CompileFailed(
                f"inline assembly has the constraints {found['constraints']!r}: {_counted(given)}; expected "
                f"{_counted(expected)}, one constraint for each register that pack={pack} fills"
            )
        named = [int(number) for number in re.findall(r"(?<!\$)\$\{?(\d+)", found["text"])]
        if max(named, default=0) >= sum(given):
            raise CompileFailed(
                f"inline assembly names ${max(named)}, expected $0 to ${sum(given) - 1}: it has {_counted(given)}"
            )


def _registers(types: str, pack: int) -> int:
    """Registers of 32 bits, or of one larger element, that `pack` elements of each type fill together."""
    count = 0
    for one in types.split(", "):
        element = _ELEMENT.search(one)
        bits = int(element["bits"]) if element and element["bits"] else 64
        count += -(-pack // min(max(32 // bits, 1), pack))
    return count


def _counted(numbers: tuple[int, ...]) -> str:
    words = (f"{number} {word}{'' if number == 1 else 's'}" for number, word in zip(numbers, _WORDS, strict=True))
    return " and ".join(words)


_WORDS = ("result", "argument")


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
            refuse_wrong_operands(text)
        return module

    ASTSource.make_ir = make_checked_ir
    try:
        yield
    finally:
        ASTSource.make_ir = make_ir
