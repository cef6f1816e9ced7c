"""Divergence: what a branch costs when the lanes of one warp or wavefront do not agree.

A wave issues the instructions of every path that at least one of its lanes takes; on each path the other lanes are
switched off and their slots are lost. A wave of 64 lanes disagrees more often than one of 32.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from gpu_utils.errors import BadArgument


@dataclass(frozen=True)
class WavePath:
    """One path as one wave runs it.

    wave  number of the wave; path: its label; instructions: of this path
    mask  for each lane whether it is active on this path
    """

    wave: int
    path: Hashable
    instructions: int
    mask: tuple[bool, ...]

    @property
    def lanes(self) -> int:
        """Active lanes."""
        return sum(self.mask)


@dataclass(frozen=True)
class Divergence:
    """A branch over all threads of a block, in waves of `width` lanes.

    width  lanes of a wave
    parts  every path of every wave that runs it, in the order of issue
    """

    width: int
    parts: tuple[WavePath, ...]

    @property
    def issued(self) -> int:
        """Instructions that the waves issue, all waves together."""
        return sum(part.instructions for part in self.parts)

    @property
    def slots(self) -> int:
        """Lane slots that these instructions occupy: width for each."""
        return self.issued * self.width

    @property
    def useful(self) -> int:
        """Lane slots in which a lane works."""
        return sum(part.instructions * part.lanes for part in self.parts)

    @property
    def lost(self) -> int:
        """Lane slots in which a lane is switched off."""
        return self.slots - self.useful

    @property
    def utilisation(self) -> float:
        """Useful slots over slots; 1.0 when nothing is issued."""
        return self.useful / self.slots if self.slots else 1.0

    @property
    def diverged(self) -> tuple[int, ...]:
        """Waves that run more than one path."""
        waves = [part.wave for part in self.parts]
        return tuple(sorted({wave for wave in waves if waves.count(wave) > 1}))


def divergence(
    paths: Sequence[Hashable], width: int = 32, instructions: Mapping[Hashable, int] | None = None
) -> Divergence:
    """What it costs to run a branch.

    paths         for each thread the label of its path (True or False for an if, any label for a switch); None for a
                  thread that takes no path, for example because it has returned
    width         lanes of a wave: 32 or 64
    instructions  label -> instructions of that path; 1 for a label that is not named. False -> 0 is an if with no else

    Errors: BadArgument for no threads, a width below 1, a negative number of instructions.

    >>> d = divergence([thread < 32 for thread in range(64)], 32), divergence([t < 32 for t in range(64)], 64)
    >>> [(wide.issued, wide.lost, wide.utilisation) for wide in d]
    [(2, 0, 1.0), (2, 64, 0.5)]
    """
    if not paths:
        raise BadArgument("there are no threads; expected the path of each thread of a block")
    if width < 1:
        raise BadArgument(f"a wave of {width} lanes was asked for; expected 32 or 64")
    costs = dict(instructions or {})
    for label, cost in costs.items():
        if cost < 0:
            raise BadArgument(f"path {label!r} has {cost} instructions; expected 0 or more")
    parts = []
    for wave, start in enumerate(range(0, len(paths), width)):
        own = list(paths[start : start + width])
        own += [None] * (width - len(own))  # a last wave that is not full
        for label in dict.fromkeys(path for path in own if path is not None):
            cost = costs.get(label, 1)
            if cost:
                parts.append(WavePath(wave, label, cost, tuple(path == label for path in own)))
    return Divergence(width, tuple(parts))
