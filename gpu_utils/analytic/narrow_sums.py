"""Errors of long sums of products in a tensor core whose running sum keeps few digits, as Hopper's does for FP8.

The model is that of MMA-Sim (arXiv 2511.10909; microsoft/MMA-Sim, mmasim/simulator/nv.py), which was compared with
chips bit by bit: an instruction takes the products of `STEP` places along K. They and the running sum are aligned to
the largest exponent among them, what lies more than `digits` places behind the binary point is cut off, they are
added, and the sum is cut to as many digits again. Hopper has 13 digits for FP8, Blackwell 25.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpu_utils.formats import FORMATS

STEP = 32
"""Places along K of one FP8 instruction of Hopper: wgmma m64nNk32."""

HOPPER = 13
"""Digits behind the binary point."""

_PAIRS = 512


def worst_sum_errors(
    lengths: Sequence[int],
    *,
    digits: int = HOPPER,
    promoted_every: int | None = None,
    signs: bool = False,
    seed: int = 0,
) -> dict[int, float]:
    """K -> the largest error among 512 sums of K products of E4M3 numbers, over the root mean square of the sums.

    lengths         multiples of STEP
    promoted_every  after so many places the running sum goes to a float32 total and starts at 0 again; None: never
    signs           factors of a bell curve, whose products cancel; else evenly from 0 to 1, whose products add up

    >>> worst_sum_errors([32], digits=40)
    {32: 0.0}
    """
    rng = np.random.default_rng(seed)
    longest = max(lengths)
    drawn = rng.standard_normal((2, _PAIRS, longest)) if signs else rng.random((2, _PAIRS, longest))
    a, b = FORMATS["e4m3fn"].rounded(drawn)
    found = {}
    for end, sums in narrow_sums(a, b, digits=digits, promoted_every=promoted_every):
        if end in lengths:
            exact = (a[:, :end] * b[:, :end]).sum(axis=1)
            found[end] = float(np.abs(sums - exact).max() / np.sqrt(np.square(exact).mean()))
    return found


def narrow_sums(
    a: np.ndarray, b: np.ndarray, *, digits: int = HOPPER, promoted_every: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """After each instruction of the model: (places so far, the sums of a * b up to there), from float64 to float64.

    a, b  float64 (pairs, K): numbers of FP8 without NaN and infinity. Where K is no multiple of STEP the last
          instruction has fewer products

    >>> [(end, sums.tolist()) for end, sums in narrow_sums(np.ones((1, 33)), np.ones((1, 33)), digits=4)]
    [(32, [32.0]), (33, [32.0])]
    """
    products, exponents = a * b, _exponent(a) + _exponent(b)  # of a product before it is normalised
    running, total = np.zeros(len(a)), np.zeros(len(a), np.float32)
    for start in range(0, a.shape[1], STEP):
        step, end = slice(start, start + STEP), min(start + STEP, a.shape[1])
        largest = np.maximum(exponents[:, step].max(axis=1), _exponent(running))
        unit = np.ldexp(1.0, largest - digits)
        parts = np.trunc(products[:, step] / unit[:, None]).sum(axis=1) + np.trunc(running / unit)
        running = _cut(parts * unit, digits)
        if promoted_every and end % promoted_every == 0:
            total, running = total + running.astype(np.float32), np.zeros(len(a))
        yield end, total + running


def _cut(values: np.ndarray, digits: int) -> np.ndarray:
    unit = np.ldexp(1.0, _exponent(values) - digits)
    return np.trunc(values / unit) * unit


def _exponent(values: np.ndarray) -> np.ndarray:
    """floor(log2 |value|); of 0 one that is below all others."""
    return np.where(values == 0, -126, np.frexp(values)[1] - 1)
