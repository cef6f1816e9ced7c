"""What a launch executed, instruction by instruction: by how many waves and lanes, targets beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import groupby

from gpu_utils.compiler.assembly import instructions
from gpu_utils.compiler.reading import check_kinds, of_kinds
from gpu_utils.ui.explore.drawing import styled
from gpu_utils.virtual import VirtualGpu

_PANE = "flex:1 1 250px;min-width:0;overflow-x:auto"
_HEAD = "".join(f'<th scope="col" class="num">{word}</th>' for word in ("waves", "lanes before"))


@dataclass(frozen=True)
class Line:
    """An instruction, how many waves executed it and how many lanes were on in them together; or a label, without."""

    text: str
    waves: int | None = None
    lanes: int | None = None

    @property
    def figures(self) -> list[str]:
        return ["" if figure is None else f"{figure:,}" for figure in (self.waves, self.lanes)]


_NONE = (Line("none of these", 0, 0),)


@dataclass(frozen=True, repr=False)
class Executed:
    """columns: target -> a Line for each instruction and each label that one of them jumps to; it shows itself."""

    columns: Mapping[str, tuple[Line, ...]]

    def __repr__(self) -> str:
        return "\n".join(
            text
            for target, lines in self.columns.items()
            for text in (
                f"{target}: waves, lanes before, instruction",
                *("{:>7} {:>7}  ".format(*line.figures) + line.text for line in lines or _NONE),
            )
        )

    def _repr_html_(self) -> str:
        panes = "".join(
            f'<div style="{_PANE}"><table><thead><tr>{_HEAD}'
            f'<th scope="col">{escape(target)}</th></tr></thead><tbody>{_rows(lines or _NONE)}</tbody></table></div>'
            for target, lines in self.columns.items()
        )
        return styled(f'<div class="w2w-x"><div class="sides">{panes}</div></div>')


def _rows(lines: tuple[Line, ...]) -> str:
    return "".join(
        "<tr>"
        + "".join(f'<td class="num">{figure}</td>' for figure in line.figures)
        + f'<td class="mono">{escape(line.text)}</td></tr>'
        for line in lines
    )


def executed(gpus: Mapping[str, VirtualGpu], *kinds: str) -> Executed:
    """The instructions that the last launch on each virtual GPU executed, in their order in the program.

    gpus   target -> virtual GPU, as `launch_on` and `launch_cpp` return them
    kinds  classes of instructions, such as "branch" or "global load", and "mask"; none: all

    Several of one mnemonic in a row are one line: the first, and how many follow. A label stands where a branch that
    was executed jumps to. Lanes are counted when an instruction begins.
    Raises UnknownName for a class.
    """
    check_kinds(kinds)
    return Executed({target: tuple(_folded(gpu, kinds)) for target, gpu in gpus.items()})


def _folded(gpu: VirtualGpu, kinds: tuple[str, ...]) -> Iterator[Line]:
    shown: list[tuple[int | None, int | None, str, str]] = []  # waves, lanes, mnemonic, text
    per_op, ops = gpu.counters.per_op(), gpu.last.program.ops
    labels = {op.target: op.text.split()[-1] for op in ops if op.target is not None and per_op[op.index][0]}
    for op in ops:
        waves, lanes = per_op[op.index]
        if waves and (label := labels.get(op.index)):
            shown.append((None, None, label, f"{label}:"))
        one = next(iter(instructions(op.text, gpu.model.vendor)), None)
        if one is not None and waves and of_kinds(one, kinds):
            shown.append((waves, lanes, one.mnemonic, one.text))
    for (waves, lanes, mnemonic), alike in groupby(shown, key=lambda entry: entry[:3]):
        first, *others = (text for *_, text in alike)
        yield Line(f"{first}   ... and {len(others)} more {mnemonic}" if others else first, waves, lanes)
