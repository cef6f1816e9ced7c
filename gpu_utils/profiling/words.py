"""Times, shares and devices as people read them."""

from __future__ import annotations

_STEPS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


def time(ns: float | None) -> str:
    """
    >>> time(950), time(12_340), time(3_000_000), time(None), time(71_234_567_890)
    ('950 ns', '12.3 us', '3 ms', 'unknown', '71.2 s')
    """
    if ns is None:
        return "unknown"
    for size, unit in _STEPS:
        if abs(ns) >= size:
            return f"{_three(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def share(part: float | None) -> str:
    """
    >>> share(0.3333), share(1.0), share(0.0004), share(None)
    ('33.3 %', '100 %', '0.04 %', 'unknown')
    """
    return "unknown" if part is None else f"{_three(100 * part)} %"


def gpu(device: str, unnamed: str = "GPU") -> str:
    """A device as its events name it, often a number alone.

    >>> gpu("0"), gpu("Agent 4"), gpu("", "the GPU")
    ('GPU 0', 'Agent 4', 'the GPU')
    """
    return f"GPU {device}" if device.isdigit() else device or unnamed


def rate(per_second: float) -> str:
    """
    >>> rate(1.5e12), rate(2e9), rate(40)
    ('1.5 T', '2 G', '40 ')
    """
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= size:
            return f"{_three(per_second / size)} {prefix}"
    return f"{_three(per_second)} "


def _three(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
