"""A tile program beside the sources that it was lowered to: which lines come from which, and which nobody wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from gpu_utils.chips import TARGETS
from gpu_utils.chips.npus import NPUS
from gpu_utils.compiler.lowered_lines import SYNC, Matched, match
from gpu_utils.compiler.tilelang import lower
from gpu_utils.errors import BadArgument
from gpu_utils.kernelset.tile_matmuls import gemm
from gpu_utils.ui.explore.drawing import Picture, box, count, heading, picture, svg, text
from gpu_utils.ui.explore.widget import Explorer, choice, slider

SIZES = {"M": 256, "N": 256, "K": 256, "BM": 64, "BN": 64, "BK": 32, "dtype": "float16"}
START = ("sm_90", "gfx942", "ascend950")
_LANGUAGES = {"nvidia": "CUDA C++", "amd": "HIP C++", "ascend": "AscendC"}


def draw(matched: Callable[[str], Matched], line: int, **targets: str) -> Picture:
    """The tile program with one line marked, and under it the lowered sources, each with the lines that come from it.

    matched  target -> the program beside what it was lowered to
    line     of the tile program, from 1; targets: which sources are shown
    """
    found = {target: matched(target) for target in dict.fromkeys(targets.values())}
    program = next(iter(found.values())).program
    line = min(line, len(program))
    said = [f"Line {line} of the tile program: {program[line - 1].text.strip() or '(empty)'}"]
    for target, one in found.items():
        said.append(
            f"{target}: {len(one.of(line))} of {count(len(one.lowered), 'line')} come from it, "
            f"{len(one.of(SYNC))} are flags, barriers and fences"
        )
    own = "".join(_row(each.number, each.text, "even" if each.number == line else "") for each in program)
    sources = "".join(
        f'<div class="side">{heading(f"{target}: {_LANGUAGES[_vendor(target)]}")}{_source(one, line)}</div>'
        for target, one in found.items()
    )
    key = (
        '<p class="small">Tinted with a bar: from the chosen line. Dashed underline: flags, barriers and fences, which '
        "no line asks for. Plain: names and operators do not tell.</p>"
    )
    words = ". ".join(said) + "."
    return picture(
        "", words, f"<pre>{own}</pre>", _shares(found, line, words), key, f'<div class="sides">{sources}</div>'
    )


def _shares(found: Mapping[str, Matched], line: int, words: str) -> str:
    """A bar for each source: the lines from the chosen line, the flags and barriers, the others."""
    longest = max(len(one.lowered) for one in found.values())
    parts = []
    for row, (target, one) in enumerate(found.items()):
        y, x = 4.0 + 32 * row, 80.0
        parts.append(text(x - 8, y + 17, target, at="end"))
        chosen, sync = len(one.of(line)), len(one.of(SYNC))
        for lines, kind, what in (
            (chosen, "even", "line"),
            (sync, "odd", "flags"),
            (len(one.lowered) - chosen - sync, "room", "other"),
        ):
            wide = 620 * lines / longest
            parts.append(box(x, y, wide, 24, kind))
            if wide > 60:
                parts.append(text(x + 4, y + 16, f"{lines} {what}", size=11))
            x += wide
    return svg(720, 8 + 32 * len(found), parts, words)


def _vendor(target: str) -> str:
    return "ascend" if target in NPUS else TARGETS[target].vendor


def _source(one: Matched, line: int) -> str:
    rows = "".join(
        _row(number, code, "even" if owner == line else "sync" if owner == SYNC else "")
        for number, (code, owner) in enumerate(zip(one.lowered, one.owners, strict=True), 1)
        if not code.startswith("#")
    )
    return f'<div style="max-height:340px;overflow:auto" tabindex="0"><pre>{rows}</pre></div>'


_STYLES = {
    "even": "border-left:4px solid var(--hue);background:var(--soft);font-weight:bold",
    "sync": "text-decoration:underline dashed;border-left:4px solid transparent",
    "": "border-left:4px solid transparent",
}


def _row(number: int, code: str, kind: str) -> str:
    return f'<span style="display:block;{_STYLES[kind]}">{number:>3} {escape(code)}</span>'


def explorer(
    program: Callable[..., Any] = gemm,
    sizes: Mapping[str, Any] | None = None,
    *,
    line: int | None = None,
    targets: Sequence[str] = START,
) -> Any:
    """A line of a tile program, and up to three targets whose sources are shown.

    program  `program(T, vendor, **sizes)`; without one, a matrix product of the course
    sizes    what it is lowered with; line: from 1

    Errors: BadArgument for a line that is not there or another number of targets; those of `lower`.
    """
    given = dict(SIZES if sizes is None else sizes)

    @cache
    def matched(target: str) -> Matched:
        return match(program, lower(program, target, **given).source)

    if len(targets) not in (1, 2, 3):
        raise BadArgument(f"{len(targets)} targets were given; give one to three")
    lines = matched(targets[0]).program
    first = next((each.number for each in lines if each.gemm or each.math), 1)
    chosen = first if line is None else line
    if not 1 <= chosen <= len(lines):
        raise BadArgument(f"there is no line {chosen}; the program has {len(lines)}, counted from 1")
    names = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950", "ascend950")
    controls = {"line": slider("line", chosen, 1, len(lines))}
    controls |= {f"target{place}": choice(f"source {place}", names, name) for place, name in enumerate(targets, 1)}
    return Explorer(lambda line, **shown: draw(matched, line, **shown), controls)
