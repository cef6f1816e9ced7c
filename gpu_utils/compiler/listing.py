"""A kernel's source beside the instructions that it became, on several targets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpu_utils.compiler.assembly import Instruction, instructions
from gpu_utils.compiler.reading import check_kinds, of_kinds
from gpu_utils.compiler.triton import Compiled, compile_for
from gpu_utils.errors import BadArgument

DEFAULT_TARGETS = ("sm_90", "gfx942")


@dataclass(frozen=True)
class Column:
    """The instructions of one target, in their own order."""

    compiled: Compiled
    instructions: tuple[Instruction, ...]

    @property
    def target(self) -> str:
        return self.compiled.target

    def of_line(self, number: int | None) -> tuple[Instruction, ...]:
        """The instructions of one source line; None for those that belong to no line."""
        return tuple(found for found in self.instructions if found.source == number)


@dataclass(frozen=True)
class Listing:
    """Source lines and, for each target, the instructions that came from them.

    name     of the kernel
    source   (line of the file, text) of the kernel's definition
    columns  one for each target

    The debug information of the compiled code says which line an instruction belongs to. Optimisation moves and
    merges instructions, so a line's instructions need not be neighbours, and a line may have none.
    """

    name: str
    source: tuple[tuple[int, str], ...]
    columns: tuple[Column, ...]

    def only(self, *fragments: str, kinds: Sequence[str] = ()) -> Listing:
        """The part that matters: source lines that hold one of the fragments, and their instructions.

        fragments  texts such as "tl.load"; none: every line
        kinds      classes of instructions, such as "global load" (`CLASSES`), or "mask" for all that makes or uses one;
                   none: all

        Raises BadArgument where no line holds a fragment, UnknownName for a class.
        """
        check_kinds(kinds)
        lines = [(number, text) for number, text in self.source if not fragments or any(f in text for f in fragments)]
        if not lines:
            raise BadArgument(
                f"no line of {self.name} holds {' or '.join(map(repr, fragments))}; quote it as it stands"
            )
        numbers = {number for number, _ in lines} | ({None} if not fragments else set())
        columns = tuple(
            replace(c, instructions=tuple(i for i in c.instructions if i.source in numbers and of_kinds(i, kinds)))
            for c in self.columns
        )
        if not fragments:  # lines without one of these instructions say nothing here
            left = {found.source for column in columns for found in column.instructions}
            lines = [(number, text) for number, text in lines if number in left]
        return replace(self, source=tuple(lines), columns=columns)

    def __str__(self) -> str:
        width = 56
        lines = [f"{self.name}: source, then {' | '.join(column.target for column in self.columns)}"]
        for number, text in [*self.source, (None, "(no source line)")]:
            cells = [[found.text for found in column.of_line(number)] for column in self.columns]
            if number is None and not any(cells):
                continue
            lines.append(f"{number if number is not None else '':>5}  {text.rstrip()}".rstrip())
            for row in itertools.zip_longest(*cells, fillvalue=""):
                lines.append(f"{'':11}{' | '.join(_fit(cell, width) for cell in row)}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__


def _compiled_from(compiled: Compiled) -> str:
    """The file that the debug information names. Triton caches by source text: it may be a file of another run."""
    found = re.search(r'^#loc = loc\("([^"]+)":', str(compiled.stages["ttir"]), re.MULTILINE)
    return found.group(1) if found else ""


def _fit(text: str, width: int) -> str:
    return f"{text:<{width}}" if len(text) <= width else text[: width - 1] + "…"


def listing(
    kernel: Any,
    *targets: str,
    args: Sequence[Any] | None = None,
    signature: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> Listing:
    """Compile a kernel for several targets and put its source lines beside their instructions.

    kernel     a `@triton.jit` function, also under an autotuner or heuristics
    targets    "sm_90", "gfx942", ...; without any: one of each vendor, DEFAULT_TARGETS
    args, signature, kwargs  as for `compile_for`: example arguments or types, then BLOCK=1024, num_warps=4, ...

    Returns a Listing: text in a terminal, and in a notebook a view where a source line and its instructions light up
    together. Errors: UnknownName for a target, CompileFailed. An instruction inlined from another function belongs to
    the kernel's line that called it.
    """
    compiled = [compile_for(kernel, name, args, signature=signature, **kwargs) for name in targets or DEFAULT_TARGETS]
    function = compiled[0].kernel
    first = function.starting_line_number
    columns = tuple(Column(c, tuple(instructions(c.asm, c.limits.vendor, _compiled_from(c)))) for c in compiled)
    source = tuple((first + i, line.rstrip("\n")) for i, line in enumerate(function.raw_src))
    return Listing(function.__name__, source, columns)
