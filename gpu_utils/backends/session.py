"""What a backend gives to the one who uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_utils.backends.recording import Launch


def _nothing() -> dict[str, float]:
    return {}


@dataclass
class Session:
    """One use of a backend.

    device    where the answer's tensors belong: "cpu" or "cuda"
    launches  every kernel launch so far, in order
    counts    what else was counted so far, by name
    """

    device: str
    launches: list[Launch] = field(default_factory=list)
    counts_launches: bool = True
    counts: Callable[[], dict[str, float]] = _nothing

    @property
    def counters(self) -> dict[str, float]:
        """What was counted so far, by name; a name that is absent was not counted."""
        return {**({"launches": len(self.launches)} if self.counts_launches else {}), **self.counts()}
