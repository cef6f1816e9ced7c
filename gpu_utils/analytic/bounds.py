"""Three bounds on a kernel's time on a chip, alone: its arithmetic, its traffic, and waiting for memory.

The third is Little's law: bytes in flight = latency x bandwidth. Waves that are resident hold so many bytes in flight;
what is in flight arrives once in each latency. A kernel that is short of them stays below both roofs.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.analytic.roofline import Roofline
from gpu_utils.errors import BadArgument

NAMES = ("compute", "memory", "latency")


@dataclass(frozen=True)
class Bounds:
    """Seconds that each of the three would take if the other two were free."""

    compute: float
    memory: float
    latency: float

    @property
    def seconds(self) -> float:
        """The least time of the kernel: the longest of the three."""
        return max(self.compute, self.memory, self.latency)

    @property
    def name(self) -> str:
        """Which one that is: "compute", "memory" or "latency"."""
        return max(NAMES, key=lambda name: getattr(self, name))

    @property
    def margin(self) -> float:
        """How many times the longest is the second longest."""
        second, first = sorted(getattr(self, name) for name in NAMES)[1:]
        return first / second if second else float("inf")


def bounds(roof: Roofline, flops: float, traffic: float, in_flight: float, latency: float) -> Bounds:
    """The three bounds of a kernel.

    flops      FLOP; traffic: bytes from and to memory
    in_flight  bytes that the whole chip has asked for and not got at a time, once it is full; never more than traffic
    latency    seconds from the question to the answer

    Errors: BadArgument unless all but flops are above 0, and flops is 0 or more.

    >>> chip = Roofline("chip", peak=100e12, bandwidth=2e12)
    >>> found = bounds(chip, flops=1e9, traffic=1e9, in_flight=0.5e6, latency=500e-9)
    >>> found.name, round(found.seconds * 1e6), found.margin  # 1 TB/s in flight, half of the bandwidth
    ('latency', 1000, 2.0)
    """
    if flops < 0 or min(traffic, in_flight, latency) <= 0:
        raise BadArgument(
            f"a kernel has {flops:g} FLOP, {traffic:g} bytes, {in_flight:g} bytes in flight and a latency of "
            f"{latency:g} s; expected FLOP of 0 or more and the others above 0"
        )
    return Bounds(flops / roof.peak, traffic / roof.bandwidth, latency * max(1.0, traffic / in_flight))
