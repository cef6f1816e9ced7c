"""What a launch executed, instruction by instruction, with the number of waves that did, targets beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import groupby

from gpu_utils.compiler.assembly import instructions
from gpu_utils.compiler.reading import check_kinds, of_kinds
from gpu_utils.ui.explore.drawing import styled
from gpu_utils.virtual import VirtualGpu

_PANE = "flex:1 1 250px;min-width:0;overflow-x:auto"
_NONE = ((0, "none of these"),)


@dataclass(frozen=True, repr=False)
class Executed:
    """columns: target -> (how often a wave executed it, its text) for each instruction; it shows itself."""

    columns: Mapping[str, tuple[tuple[int, str], ...]]

    def __repr__(self) -> str:
        return "\n".join(
            line
            for target, rows in self.columns.items()
            for line in (f"{target}: waves, instruction", *(f"{times:>7,}  {text}" for times, text in rows or _NONE))
        )

    def _repr_html_(self) -> str:
        panes = "".join(
            f'<div style="{_PANE}"><table><thead><tr><th scope="col" class="num">waves</th>'
            f'<th scope="col">{escape(target)}</th></tr></thead><tbody>{_rows(rows or _NONE)}</tbody></table></div>'
            for target, rows in self.columns.items()
        )
        return styled(f'<div class="w2w-x"><div class="sides">{panes}</div></div>')


def _rows(rows: tuple[tuple[int, str], ...]) -> str:
    return "".join(
        f'<tr><td class="num">{times:,}</td><td class="mono">{escape(text)}</td></tr>' for times, text in rows
    )


def executed(gpus: Mapping[str, VirtualGpu], *kinds: str) -> Executed:
    """The instructions that the last launch on each virtual GPU executed, in their order in the program.

    gpus   target -> virtual GPU, as `launch_on` and `launch_cpp` return them
    kinds  classes of instructions, such as "branch" or "global load", and "mask"; none: all

    Several of one mnemonic in a row are one line: the first, and how many follow.
    Raises UnknownName for a class.
    """
    check_kinds(kinds)
    return Executed({target: tuple(_folded(target, gpu, kinds)) for target, gpu in gpus.items()})


def _folded(target: str, gpu: VirtualGpu, kinds: tuple[str, ...]) -> list[tuple[int, str]]:
    vendor = gpu.model.vendor
    found = []
    for _, text, times in gpu.listing:
        one = next(iter(instructions(text, vendor)), None)
        if one is not None and times and of_kinds(one, kinds):
            found.append((times, one))
    folded = []
    for (times, mnemonic), alike in groupby(found, key=lambda pair: (pair[0], pair[1].mnemonic)):
        first, *others = (one.text for _, one in alike)
        more = len(others)
        folded.append((times, f"{first}   ... and {more} more {mnemonic}" if more else first))
    return folded
