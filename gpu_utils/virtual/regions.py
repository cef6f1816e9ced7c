"""What a kernel may access: regions of this process's memory, whole or the views of them that were passed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpu_utils.virtual.races import AccessLog


@dataclass(slots=True, eq=False)
class Region:
    """Bytes [start, start + size) that belong together: the storage of a tensor, shared memory, arguments.

    kind: "tensor", "scratch", "constant" or "args". keep: what owns the bytes, kept alive with the region.
    number: given when it is registered; decides where the counters see it. log: who accessed it, for a tensor.
    views: (first address, address after the last byte, name) of the parts that may be accessed; none: all.
    """

    name: str
    start: int
    size: int
    kind: str
    keep: Any = None
    number: int = -1
    log: AccessLog | None = None
    views: list[tuple[int, int, str]] = field(default_factory=list)

    def spans(self) -> list[Span]:
        """The bytes that may be accessed: views that touch or overlap are one."""
        if not self.views:
            return [Span(self.start, self.start + self.size, self.name, self)]
        found: list[Span] = []
        for start, end, name in sorted(self.views):
            if found and start <= found[-1].end:
                last = found.pop()
                names = last.name if name in last.name.split(" and ") else f"{last.name} and {name}"
                found.append(Span(last.start, max(last.end, end), names, self))
            elif end > start:
                found.append(Span(start, end, name, self))
        return found


class Span(NamedTuple):
    """Bytes [start, end) that may be accessed."""

    start: int
    end: int
    name: str
    region: Region
