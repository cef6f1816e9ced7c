"""How a one-dimensional launch is laid over warps, wavefronts and lanes, as a picture for both vendors."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.chips import TARGETS
from gpu_utils.ui.explore.drawing import box, path, styled, svg, text, wave

_WIDTH, _GAP, _LABEL, _CELL = 940.0, 30.0, 86.0, 34.0
_MOST_WAVES, _MOST_ELEMENTS = 4, 8
_WIDEST = 16  # bytes that one load instruction brings to a lane, at most


@dataclass(frozen=True)
class LaunchFigure:
    """A launch of one program per BLOCK elements, num_warps warps or wavefronts to a program.

    n          elements in all, of 4 bytes, in tensors that start at a multiple of 16 bytes
    block      elements of one program; num_warps: warps or wavefronts of one program
    targets    one for each side, with its number of lanes

    Which lane holds which element is Triton's layout for such loads and stores: each lane up to four neighbours, then
    again from the first lane on (a test compares it with what the virtual GPUs load). It shows itself as a drawing in a
    notebook and as text elsewhere; the drawing carries the text as its alternative.

    >>> LaunchFigure(3000, 1024, 4).elements(64, lane=1), LaunchFigure(3000, 1024, 4).elements(32)
    ([4, 5, 6, 7], [0, 1, 2, 3, 512, 513, 514, 515])
    """

    n: int
    block: int
    num_warps: int
    targets: tuple[str, ...] = ("sm_80", "gfx942")

    @property
    def programs(self) -> int:
        return -(-self.n // self.block)

    def elements_per_lane(self, lanes: int) -> int:
        """Elements that each lane handles where a warp or wavefront has that many lanes; at least one."""
        return max(1, self.block // (self.num_warps * lanes))

    def elements(self, lanes: int, lane: int = 0, wave: int = 0) -> list[int]:
        """The elements of program 0 that one lane of one warp or wavefront holds."""
        threads = self.num_warps * lanes
        together = min(_WIDEST // 4, self.elements_per_lane(lanes))
        first = (wave * lanes + lane) * together
        return [
            (start + first + at) % self.block
            for start in range(0, max(self.block, threads * together), threads * together)
            for at in range(together)
        ]

    def __repr__(self) -> str:
        masked = self.programs * self.block - self.n
        per_vendor = "; ".join(self._words(name) for name in self.targets)
        return (
            f"{self.n:,} elements are covered by a grid of {self.programs} programs of {self.block} elements; "
            f"the last {masked} positions of the last program are masked. One program runs {per_vendor}."
        )

    def _words(self, name: str) -> str:
        lanes, what = TARGETS[name].lanes, wave(TARGETS[name].vendor)
        return (
            f"on {name} {self.num_warps} {what}s of {lanes} lanes, {self.elements_per_lane(lanes)} elements a lane: "
            f"lane 0 of {what} 0 holds {_ranges(self.elements(lanes))}"
        )

    def _repr_html_(self) -> str:
        panel = (_WIDTH - _GAP * (len(self.targets) - 1)) / len(self.targets)
        parts = self._grid()
        for side, name in enumerate(self.targets):
            drawn = "".join(self._program(name, side * (panel + _GAP), panel))
            parts.append(f'<g class="{TARGETS[name].vendor}">{drawn}</g>')
        height = 280 + 22 * min(self.num_warps, _MOST_WAVES)
        return styled(f'<div class="w2w-x">{svg(_WIDTH + 2, height, parts, repr(self))}</div>')

    def _grid(self) -> list[str]:
        """The vector, cut into programs; what is past its end is empty."""
        width = _WIDTH / self.programs
        parts = [text(0, 14, f"grid: {self.programs} programs cover {self.n:,} elements", size=14, bold=True)]
        for program in range(self.programs):
            left, first = program * width, program * self.block
            share = min(1.0, (self.n - first) / self.block)
            parts.append(box(left, 24, width * share, 40, "room"))
            if share < 1:
                parts.append(box(left + width * share, 24, width * (1 - share), 40))
                parts.append(text(min(left + width * (1 + share) / 2, _WIDTH - 24), 78, "masked", at="middle"))
            if self.programs <= 8:
                parts.append(text(left + 8, 41, f"program {program}"))
                parts.append(text(left + 8, 57, f"{first} ... {first + self.block - 1}", size=11))
        parts.append(path([(width / 2, 64), (width / 2, 92)], "edge"))
        parts.append(path([(0, 92), (_WIDTH, 92)], "edge"))
        return parts

    def _program(self, name: str, left: float, width: float) -> list[str]:
        """One program: its warps or wavefronts with the elements of each, and the elements of three lanes."""
        lanes, what = TARGETS[name].lanes, wave(TARGETS[name].vendor)
        parts = [text(left, 114, f"program 0 on {name}: {self.num_warps} {what}s of {lanes} lanes", size=14, bold=True)]
        shown, cell, y = min(self.num_warps, _MOST_WAVES), 3.0 * 64 / lanes, 122.0
        for row in range(shown):
            parts.append(text(left, y + 13, f"{what} {row}"))
            parts += [
                box(left + _LABEL + lane * cell, y, cell, 16, "even" if row == lane == 0 else "odd")
                for lane in range(lanes)
            ]
            held = sorted({element for lane in range(lanes) for element in self.elements(lanes, lane, row)})
            parts.append(text(left + _LABEL + 64 * 3 + 8, y + 13, _ranges(held), size=11))
            y += 22
        if shown < self.num_warps:
            parts.append(text(left, y + 12, f"... and {self.num_warps - shown} more"))
        y += 20
        parts.append(text(left, y + 12, f"in {what} 0, {self.elements_per_lane(lanes)} elements a lane:", bold=True))
        y += 20
        for lane in (0, 1, lanes - 1):
            if lane > 1:
                parts.append(text(left, y + 11, "..."))
                y += 18
            parts.append(text(left, y + 15, f"lane {lane}"))
            elements = self.elements(lanes, lane)
            for at, element in enumerate(elements[:_MOST_ELEMENTS]):
                gap = 6 * (at // (_WIDEST // 4))
                x = left + _LABEL + at * _CELL + gap
                parts.append(box(x, y, _CELL, 20, "even" if lane == 0 else "odd"))
                parts.append(text(x + _CELL / 2, y + 14, element, size=11, at="middle"))
            if len(elements) > _MOST_ELEMENTS:
                parts.append(text(left + width - 4, y + 15, "...", at="end"))
            y += 24
        return parts


def _ranges(elements: list[int]) -> str:
    """
    >>> _ranges([0, 1, 2, 3, 512, 513, 514, 515]), _ranges([7])
    ('0-3 and 512-515', '7')
    """
    runs: list[list[int]] = []
    for element in elements:
        if runs and element == runs[-1][-1] + 1:
            runs[-1].append(element)
        else:
            runs.append([element])
    words = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return " and ".join(words) if len(words) < 3 else f"{words[0]} and {len(words) - 1} more such"
