"""Inline assembly whose register constraints do not fit, found before LLVM sees it.

LLVM ends the process when it cannot allocate a register for a constraint ("couldn't allocate output register for
constraint 'f'", mamba #1018, sglang #34351), when there are more or fewer constraints than operands, when they stand in
an order that it does not take, and when the text names an operand that is not there. Inside `checked_constraints()` a
kernel with such a mistake raises CompileFailed instead. What LLVM takes is let through, all of it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from gpu_utils.errors import CompileFailed

_LETTERS = {
    "cuda": ("NVIDIA", "bchrlfdNinX", '"r" (32-bit integers), "f" (float32) or "h", "l", "d"'),
    "hip": ("AMD", "vsarinIJABCX", '"v" (vector registers) or "s" (scalar registers)'),
}
"""Backend -> vendor, the letters with which LLVM compiles for it (measured with Triton 3.7.1), and what to try.

Of NVIDIA "i" and "n", of AMD "i", "n", "I", "J", "A", "B", "C" are numbers that stand in the text themselves.
"""

_CODE = re.compile(r"\{[^}]*\}|\^..|\d+|[^|]")
"""One of the places where an operand may be: "ri" names two, "r|f" two alternatives, "^VA" is one code of AMD's."""

_INLINE = re.compile(r'elementwise_inline_asm "[^\n]*?" \{constraints = "([^"]*)"|constraints = "([^"]*)"')


def refuse_foreign_constraints(ir: str, target: Any) -> None:
    """Raise CompileFailed when a constraint in Triton's own IR is none of the target's; `target` is a GPUTarget."""
    vendor, _, advice = _LETTERS[target.backend]
    for found in _INLINE.finditer(ir):
        for constraint in _split(found[2] if found[1] is None else found[1]):
            foreign = next((code for code in _codes(constraint) if not _is_known(code, target)), None)
            if foreign is None:
                continue
            raise CompileFailed(
                f"inline assembly with the constraint {constraint!r} is compiled for {vendor} ({target.arch}), "
                f"which has no such registers; expected {advice}: fence the line behind a test of the target: "
                f"couldn't allocate a register for constraint '{foreign}'"
            )


def _split(constraints: str) -> list[str]:
    return [one.strip() for one in constraints.split(",")]


def _codes(constraint: str) -> list[str]:
    """The places that a constraint names; none for a clobber.

    >>> _codes("=&v"), _codes("ri"), _codes("0"), _codes("{v[0:1]}"), _codes("~{memory}")
    (['v'], ['r', 'i'], ['0'], ['{v[0:1]}'], [])
    """
    return [] if constraint.startswith("~") else _CODE.findall(constraint.lstrip("=&%+*# "))


def _is_known(code: str, target: Any) -> bool:
    if code == "a" and target.backend == "hip":
        return str(target.arch).startswith("gfx9")  # accumulation registers
    if code[0] in "{^":
        return bool(target.backend == "hip")
    return code.isdigit() or code in _LETTERS[target.backend][1]


_OPERATION = re.compile(
    r'elementwise_inline_asm "(?P<text>[^"\n]*)" '
    r'\{constraints = "(?P<constraints>[^"]*)", packed_element = (?P<pack>\d+) '
    r":[^}\n]*\}(?: (?P<operands>[^\n]*?) : (?P<arguments>[^\n]*))? -> (?P<results>[^\n]*?)(?: loc\(|$)",
    re.MULTILINE,
)
_ELEMENT = re.compile(r"!tt\.ptr<|(?:x|^|<)(?:bf|f|i)(?P<bits>\d+)\w*>?$")
_ESCAPED = re.compile(r"\\([0-9A-F]{2})")
_DOLLAR = re.compile(
    r"\$(?:\$|[(|)]|\{:\w+\}|(?P<number>\d+)|\{(?P<braced>\d+)(?::[acnlrs])?\}|(?P<other>[^\s;,]{0,12}))"
)
"""A dollar, a choice between dialects, LLVM's own names, an operand; nothing else may follow a dollar."""


def refuse_wrong_operands(ir: str) -> None:
    """Raise CompileFailed when inline assembly has too many or too few constraints, or names an operand it has not."""
    for found in _OPERATION.finditer(ir):
        pack, said = int(found["pack"]), _split(found["constraints"])
        if blank := re.search(r"(?:^|,)\s+[=~]\S*", found["constraints"]):
            raise CompileFailed(
                f"inline assembly has the constraints {found['constraints']!r}, with a blank before "
                f"{blank[0].strip(', ')!r}: LLVM takes that for an argument; write them without blanks"
            )
        registers = [_registers(found[types] or "", pack) for types in ("results", "arguments")]
        expected = len(registers[0]), len(registers[1])
        results = sum(one.startswith("=") for one in said)
        given = results, sum(not one.startswith(("=", "~")) for one in said)
        if given != expected:
            raise CompileFailed(
                f"inline assembly has the constraints {found['constraints']!r}: {_counted(given)}; expected "
                f"{_counted(expected)}, one constraint for each register that pack={pack} fills" + _in_and_out(said)
            )
        if not all(one.startswith("=") for one in said[:results]):
            raise CompileFailed(
                f"inline assembly has the constraints {found['constraints']!r}; expected the results, with '=', before "
                "the arguments"
            )
        tied = next((one for one in said if one.isdigit() and int(one) >= results), None)
        if tied is not None:
            raise CompileFailed(
                f"inline assembly has the constraint {tied!r}, the register of result {tied}; it has "
                f"{_counted(given)}, and results are counted from 0"
            )
        _refuse_unknown_numbers(said[results:], found["operands"] or "", registers[1], ir)
        _refuse_narrow(said, registers[0] + registers[1], pack)
        _refuse_wrong_names(_plain(found["text"]), given)


_READS_FILES = re.compile(r"\.\s*(?:include|incbin|altmacro)\b|\.\s*\w*\\", re.IGNORECASE)
"""What makes LLVM's assembler read a file, or put the name of such a directive together."""
_COMMENT = re.compile(r"/\*.*?\*/|(?://|;)[^\n]*", re.DOTALL)


def refuse_files(ir: str) -> None:
    """Raise CompileFailed when inline assembly for AMD makes the assembler read a file.

    What stands in it would come out in a message, and LLVM ends the process where the file is not there.
    """
    for found in _OPERATION.finditer(ir):
        text = re.sub(r'"[^"\n]*"', '""', _plain(found["text"]))
        if directive := _READS_FILES.search(_COMMENT.sub("", text)):
            raise CompileFailed(
                f"inline assembly has the directive {directive[0]!r}, and may read no file; expected instructions"
            )


def _plain(text: str) -> str:
    """The text as it was given; in Triton's IR some of its characters stand as numbers."""
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text).replace("\\\\", "\\")


def _in_and_out(said: list[str]) -> str:
    """What to write for a constraint of C that LLVM does not know."""
    if not any(one.startswith("+") for one in said):
        return ""
    return ": LLVM knows no '+', and writes '=r' for the result and '0' for the argument in the same register"


def _refuse_wrong_names(text: str, given: tuple[int, int]) -> None:
    count = sum(given)
    for found in _DOLLAR.finditer(text):
        if found["other"] is not None:
            raise CompileFailed(
                f"inline assembly has '${found['other']}' in its text, where $ begins an operand, $0 to ${count - 1}; "
                "a dollar itself is written $$"
            )
        number = found["number"] or found["braced"]
        if number and int(number) >= count:
            raise CompileFailed(
                f"inline assembly names ${number}, expected $0 to ${count - 1}: it has {_counted(given)}"
            )


def _registers(types: str, pack: int) -> list[tuple[int, int]]:
    """The registers that `pack` elements of each type fill together, of 32 bits or of one larger element each.

    >>> _registers("tensor<256xi8>, tensor<256xf32>", 2)
    [(2, 8), (1, 32), (1, 32)]

    Each is (elements, bits of one).
    """
    found = []
    for one in types.split(", ") if types else []:
        element = _ELEMENT.search(one)
        bits = int(element["bits"]) if element and element["bits"] else 64
        together = min(max(32 // bits, 1), pack)
        found += [(together, bits)] * -(-pack // together)
    return found


def _refuse_unknown_numbers(said: list[str], operands: str, registers: list[tuple[int, int]], ir: str) -> None:
    """LLVM ends where a constraint wants a number that stands in the text, and gets what was loaded."""
    names = operands.split(", ")
    if len(names) != len(registers):  # several elements of one argument in registers of their own
        return
    for constraint, name in zip(said, names, strict=False):
        if re.fullmatch(r"[inIJABC]", constraint) and re.search(rf"{re.escape(name)} = tt\.load ", ir):
            raise CompileFailed(
                f"inline assembly has the constraint {constraint!r}, a number that is known when it is compiled, for "
                "an argument that was loaded; expected the letter of a register"
            )


def _refuse_narrow(said: list[str], registers: list[tuple[int, int]], pack: int) -> None:
    """LLVM ends where elements that lie side by side do not fit a register of the letter's."""
    operands = [one for one in said if not one.startswith("~")]
    for constraint, (together, bits) in zip(operands, registers, strict=True):
        code = constraint.lstrip("=&% ")
        if together > 1 and together * bits > {"b": 1, "h": 16}.get(code, 64):
            raise CompileFailed(
                f"inline assembly has the constraint {constraint!r} for {together * bits} bits: pack={pack} puts "
                f"{together} elements of {bits} bits into one register; expected 'r', of 32 bits, or smaller elements"
            )


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
            if target.backend == "hip":
                refuse_files(text)
        return module

    ASTSource.make_ir = make_checked_ir
    try:
        yield
    finally:
        ASTSource.make_ir = make_ir
