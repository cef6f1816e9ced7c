"""Roofline: the most FLOP/s that a kernel can reach, from its FLOP per byte and two figures of the chip.

Rates are FLOP/s and bytes/s, work is FLOP and bytes, time is seconds: no prefixes inside.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.chips import CHIPS, Chip
from gpu_utils.errors import BadArgument, UnknownFigure

TERA = 1e12


@dataclass(frozen=True)
class Point:
    """One kernel on a roofline.

    flops    operations, a multiply-add counted as two; bytes: moved to and from memory
    seconds  measured; None when it was not
    """

    name: str
    flops: float
    bytes: float
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.flops < 0 or self.bytes <= 0 or (self.seconds is not None and self.seconds <= 0):
            raise BadArgument(
                f"{self.name} has {self.flops:g} FLOP, {self.bytes:g} bytes and {self.seconds} seconds; "
                "expected FLOP of 0 or more, bytes above 0, and seconds above 0 or None"
            )

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes

    @property
    def achieved(self) -> float | None:
        """FLOP/s that were measured; None without a time."""
        return None if self.seconds is None else self.flops / self.seconds


@dataclass(frozen=True)
class Roofline:
    """Two ceilings of one chip.

    peak       FLOP/s; bandwidth: bytes/s
    sources    where the two figures come from
    """

    name: str
    peak: float
    bandwidth: float
    sources: tuple[str, str] = ("given", "given")

    def __post_init__(self) -> None:
        if self.peak <= 0 or self.bandwidth <= 0:
            raise BadArgument(
                f"{self.name} has a peak of {self.peak:g} and {self.bandwidth:g} bytes/s; expected above 0"
            )

    @property
    def ridge(self) -> float:
        """FLOP per byte at which the two ceilings meet."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """The most FLOP/s at an intensity in FLOP per byte: min(peak, intensity * bandwidth).

        >>> h100 = roofline("H100")
        >>> round(h100.ridge), round(h100.attainable(100) / 1e12), round(h100.attainable(1000) / 1e12)
        (295, 335, 989)
        """
        return min(self.peak, intensity * self.bandwidth)

    def bound(self, intensity: float) -> str:
        """ "memory" left of the ridge, else "compute"."""
        return "memory" if intensity < self.ridge else "compute"

    def seconds(self, point: Point) -> float:
        """The least time: the larger of the two that arithmetic and traffic take alone."""
        return max(point.flops / self.peak, point.bytes / self.bandwidth)

    def fraction(self, point: Point) -> float | None:
        """Least time over measured time; None without a time. Above 1 says that a count is wrong or a cache helped."""
        return None if point.seconds is None else self.seconds(point) / point.seconds


def roofline(chip: Chip | str, dtype: object = "bf16") -> Roofline:
    """The roofline of a chip of the registry for a number format ("fp32", "tf32", "bf16", "fp8", torch.bfloat16).

    Errors: UnknownName for a chip or format; UnknownFigure when the registry has no source for the peak or bandwidth.

    >>> roofline("MI300X", "fp8").sources[1]
    'ROCm docs/conceptual/gpu-arch/mi300.md'
    """
    row = CHIPS[chip] if isinstance(chip, str) else chip
    peak, bandwidth = row.peak_figure(dtype), row.bandwidth_tb
    for what, figure in ((f"a peak for {dtype}", peak), ("a memory bandwidth", bandwidth)):
        if figure.value is None:
            raise UnknownFigure(
                f"the registry has no figure for {what} of {row.name} ({figure.note}); "
                "choose another chip or format, or give Roofline(name, peak, bandwidth) numbers of your own"
            )
    assert peak.value is not None
    assert bandwidth.value is not None
    return Roofline(row.name, peak.value * TERA, bandwidth.value * TERA, (peak.source, bandwidth.source))


def share_of_roofline(chip: Chip | None, dtype: object, point: Point) -> float | None:
    """`Roofline.fraction` of a point on a chip's roofline; None for no chip, or one that lacks a figure for it.

    >>> copy = Point("copy", flops=0, bytes=3.35e12, seconds=2.0)
    >>> share_of_roofline(CHIPS["H100"], "fp32", copy), share_of_roofline(None, "fp32", copy)
    (0.5, None)
    """
    try:
        return roofline(chip, dtype).fraction(point) if chip else None
    except UnknownFigure:
        return None


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """The most FLOP/s at an intensity: min(peak, intensity * bandwidth), in whatever unit peak and bandwidth share.

    >>> attainable(50, peak=989.4, bandwidth=3.35), attainable(500, peak=989.4, bandwidth=3.35)  # TFLOP/s, TB/s
    (167.5, 989.4)
    """
    return Roofline("chip", peak, bandwidth).attainable(intensity)
