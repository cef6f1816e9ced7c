"""How a one-dimensional launch is laid over warps, wavefronts and lanes, as a picture for both vendors."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

_COLOURS = {"nvidia": "#2f7d32", "amd": "#b3401f"}
_WAVE = {"nvidia": "warp", "amd": "wavefront"}
_INK, _PALE, _SHOWN, _GRID = "#1f2328", "#f3f5f7", "#cfd6dd", "#8c959f"
_WIDTH, _MARGIN = 960, 24
_MOST_WAVES = 4


@dataclass(frozen=True)
class LaunchFigure:
    """A launch of one program per BLOCK elements, num_warps warps or wavefronts to a program.

    n          elements in all
    block      elements of one program
    num_warps  warps (32 lanes) on NVIDIA, wavefronts (64 lanes, as on MI300X) on AMD, of one program
    It shows itself as SVG in a notebook and as text elsewhere; the SVG carries the text as its alternative.

    >>> LaunchFigure(3000, 1024, 4).elements_per_lane(64)
    4
    """

    n: int
    block: int
    num_warps: int

    @property
    def programs(self) -> int:
        return -(-self.n // self.block)

    def elements_per_lane(self, lanes: int) -> int:
        """Elements that each lane handles where a warp or wavefront has that many lanes; at least one."""
        return max(1, self.block // (self.num_warps * lanes))

    def __repr__(self) -> str:
        masked = self.programs * self.block - self.n
        per_vendor = "; ".join(
            f"on {name} {self.num_warps} {_WAVE[vendor]}s of {lanes} lanes, "
            f"{self.elements_per_lane(lanes)} elements a lane"
            for vendor, name, lanes in _SIDES
        )
        return (
            f"{self.n} elements are covered by a grid of {self.programs} programs of {self.block} elements; "
            f"the last {masked} positions of the last program are masked. One program runs {per_vendor}."
        )

    def _repr_html_(self) -> str:
        panel = (_WIDTH - 3 * _MARGIN) / 2
        height = 260 + 26 * min(self.num_warps, _MOST_WAVES)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
            f'aria-label="{escape(repr(self))}" style="max-width:{_WIDTH}px;width:100%;background:white" '
            'font-family="sans-serif">',
            f"<title>{escape(repr(self))}</title>",
            *self._grid(),
        ]
        for side, (vendor, name, lanes) in enumerate(_SIDES):
            parts += self._program(vendor, name, lanes, _MARGIN + side * (panel + _MARGIN), panel)
        return "".join([*parts, "</svg>"])

    def _grid(self) -> list[str]:
        """The vector, cut into programs; what is past its end is drawn dashed."""
        width = (_WIDTH - 2 * _MARGIN) / self.programs
        parts = [_text(_MARGIN, 24, f"grid: {self.programs} programs cover {self.n} elements", bold=True)]
        for program in range(self.programs):
            left, first = _MARGIN + program * width, program * self.block
            share = min(1.0, (self.n - first) / self.block)
            parts.append(_box(left, 36, width * share, 40, _PALE if program else _SHOWN))
            if share < 1:
                parts.append(_box(left + width * share, 36, width * (1 - share), 40, "white", dashed=True))
                parts.append(_text(left + width * (1 + share) / 2, 92, "masked", centred=True, size=12))
            if self.programs <= 8:
                parts.append(_text(left + 8, 52, f"program {program}", size=13))
                parts.append(_text(left + 8, 69, f"{first} ... {first + self.block - 1}", size=12))
        across = f"M {_MARGIN + width / 2:.1f} 76 V 108 M {_MARGIN} 108 H {_WIDTH - _MARGIN}"
        parts.append(f'<path d="{across}" stroke="{_GRID}" stroke-width="2" fill="none"/>')
        return parts

    def _program(self, vendor: str, name: str, lanes: int, left: float, width: float) -> list[str]:
        """One program: its warps or wavefronts, the lanes of each, and the elements of one lane."""
        colour, wave, top = _COLOURS[vendor], _WAVE[vendor], 130
        parts = [
            _text(left, top + 12, f"program 0 on {name}: {self.num_warps} {wave}s of {lanes} lanes", bold=True),
        ]
        shown = min(self.num_warps, _MOST_WAVES)
        cell = (width - 96) / lanes
        for row in range(shown):
            y = top + 26 + row * 26
            parts.append(_text(left, y + 14, f"{wave} {row}", size=13))
            parts += [_box(left + 96 + lane * cell, y, cell, 18, _PALE, colour) for lane in range(lanes)]
        y = top + 26 + shown * 26
        if shown < self.num_warps:
            parts.append(_text(left, y + 12, f"... and {self.num_warps - shown} more", size=13))
        each = self.elements_per_lane(lanes)
        parts.append(_box(left + 96, top + 26, cell, 18, colour, colour))
        parts.append(
            f'<path d="M {left + 96 + cell / 2} {top + 44} L {left + 96 + cell / 2} {y + 34}" stroke="{colour}"/>'
        )
        parts.append(_text(left, y + 48, f"lane 0 of {wave} 0 holds {each} elements", size=13))
        drawn = min(each, 32)
        size = min(24.0, (width - 4) / drawn)
        parts += [_box(left + i * size, y + 58, size, 20, colour, "white") for i in range(drawn)]
        return parts


_SIDES = (("nvidia", "NVIDIA", 32), ("amd", "AMD CDNA", 64))


def _text(x: float, y: float, text: str, *, bold: bool = False, centred: bool = False, size: int = 15) -> str:
    style = (' font-weight="bold"' if bold else "") + (' text-anchor="middle"' if centred else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{_INK}"{style}>{escape(text)}</text>'


def _box(
    x: float, y: float, width: float, height: float, fill: str, stroke: str = _GRID, *, dashed: bool = False
) -> str:
    style = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="{stroke}"'
        f"{style}/>"
    )
