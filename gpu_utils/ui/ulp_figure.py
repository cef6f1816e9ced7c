"""How far two results are apart, in units in the last place: a histogram for each pair of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, percent, picture, small, svg, text

_WIDTH, _LABEL, _BARS, _ROW = 760.0, 190.0, 34.0, 62.0
_MOST_BINS = 16
"""Columns of a histogram: from there on all that is larger shares the last one."""

_CODES = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}


@dataclass(frozen=True)
class Apart:
    """Distances of a pair of results.

    counts   elements by column: 0 ulp, 1, 2 to 3, 4 to 7, ... (as many columns as are needed)
    broken   elements of which one alone is NaN
    largest  the largest distance, in ulp, of the others
    """

    counts: tuple[int, ...]
    broken: int
    largest: int

    @property
    def equal(self) -> float:
        """The share of elements with equal bits, or of equal value (+0 and -0; NaN and NaN)."""
        return self.counts[0] / (sum(self.counts) + self.broken)


def ulps_apart(a: Tensor, b: Tensor) -> Apart:
    """The distances of two results in units in the last place, as a histogram.

    a, b  of one shape and one type: float16, bfloat16 or float32

    Errors: BadArgument for two shapes, two types, another type, and for nothing.

    >>> one = torch.ones(4)
    >>> ulps_apart(one, one + torch.tensor([0, 1, 2, 3]) * 2**-23)
    Apart(counts=(1, 1, 2), broken=0, largest=3)
    """
    if a.shape != b.shape or a.dtype != b.dtype or a.dtype not in _CODES or not a.numel():
        raise BadArgument(
            f"{a.dtype} of shape {tuple(a.shape)} and {b.dtype} of shape {tuple(b.shape)} cannot be compared; expected "
            "results of one shape and one type, float16, bfloat16 or float32"
        )
    broken = a.isnan() ^ b.isnan()
    both = (a.isnan() & b.isnan()).flatten()
    places = []
    for x in (a, b):
        codes = x.detach().cpu().contiguous().view(_CODES[x.dtype]).long().flatten()
        sign = torch.iinfo(_CODES[x.dtype]).min
        places.append(torch.where(codes < 0, sign - codes, codes))
    apart = (places[0] - places[1]).abs()
    apart[both.cpu()] = 0
    apart = apart[~broken.flatten().cpu()]
    columns = torch.frexp(apart.double()).exponent.clamp(0, _MOST_BINS - 1)
    counts = torch.bincount(columns, minlength=1).tolist()
    return Apart(tuple(counts), int(broken.sum()), int(apart.max()) if len(apart) else 0)


def ulp_histogram(pairs: Mapping[str, tuple[Tensor, Tensor]]) -> Picture:
    """A histogram of distances in units in the last place (ulp) for each pair of results, by powers of two.

    pairs  label -> two results of one shape and one type: {"exp2: sm_90, gfx942": (one, other)}

    Errors: BadArgument for no pairs, and as `ulps_apart`.

    >>> one = torch.ones(4)
    >>> ulp_histogram({"exp2: sm_90, gfx942": (one, one + torch.tensor([0, 1, 2, 3]) * 2**-23)})
    exp2: sm_90, gfx942: 25% equal, 25% 1 ulp apart, 50% 2 to 3 ulp apart; largest 3 ulp.
    """
    found = {str(label): ulps_apart(*pair) for label, pair in pairs.items()}
    if not found:
        raise BadArgument("a histogram was asked for no pairs; expected label -> (one result, another)")
    bins = max(len(apart.counts) for apart in found.values())
    names = [_tick(at) for at in range(bins)]
    if any(apart.broken for apart in found.values()):
        names.append("NaN")
    words = " ".join(f"{label}: {_words(apart)}." for label, apart in found.items())
    wide = (_WIDTH - _LABEL) / max(len(names), 8)
    parts = []
    for row, (label, apart) in enumerate(found.items()):
        base = (row + 1) * _ROW - 6
        largest = "all equal" if apart.equal == 1 else f"largest {apart.largest:,} ulp"
        parts += [text(0, base - 20, label, bold=True), text(0, base - 4, largest, size=11)]
        counts = [*apart.counts, *[0] * (bins - len(apart.counts)), *([apart.broken] if len(names) > bins else [])]
        whole = sum(apart.counts) + apart.broken
        for at, count in enumerate(counts):
            x, share = _LABEL + at * wide, count / whole
            if count:
                high = max(share * _BARS, 1.0)
                parts.append(box(x + 3, base - high, wide - 6, high, "odd" if at == 0 else "even"))
                parts.append(text(x + wide / 2, base - high - 4, _over_column(share), size=10, at="middle"))
        parts.append(f'<path class="line" d="M{_LABEL:g} {base:g}H{_LABEL + wide * len(names):.1f}"/>')
    under = len(found) * _ROW + 10
    for at, name in enumerate(names):
        parts.append(text(_LABEL + (at + 0.5) * wide, under, name, size=11, at="middle"))
    parts.append(text(_LABEL - 8, under, "ulp apart", size=11, at="end"))
    after = small(
        "Columns are shares of all elements of a row. 4 stands for 4 to 7 ulp, 8 for 8 to 15. Pale: equal bits."
    )
    return picture("", words, svg(_WIDTH, under + 8, parts, words), after=after, spoken=False)


def _tick(at: int) -> str:
    """The least distance of a column.

    >>> [_tick(at) for at in (0, 1, 2, 3, 11, _MOST_BINS - 1)]
    ['0', '1', '2', '4', '1k', '16k+']
    """
    low = 2 ** (at - 1) if at else 0
    return (f"{low // 1024}k" if low >= 1024 else str(low)) + ("+" if at == _MOST_BINS - 1 else "")


def _span(at: int) -> str:
    """
    >>> _span(1), _span(3), _span(_MOST_BINS - 1)
    ('1', '4 to 7', '16,384 or more')
    """
    low = 2 ** (at - 1)
    if at == _MOST_BINS - 1:
        return f"{low:,} or more"
    return f"{low:,} to {2 * low - 1:,}" if low > 1 else str(low)


def _share(share: float) -> str:
    """
    >>> _share(1.0), _share(0.99999), _share(0.5)
    ('100%', '>99.9%', '50%')
    """
    return ">99.9%" if 0.9995 <= share < 1 else percent(share)


def _over_column(share: float) -> str:
    """The same where there is little room: the drawing's words have the figures.

    >>> _over_column(0.000244), _over_column(0.0786)
    ('<1%', '7.86%')
    """
    return "<1%" if share < 0.01 else _share(share)


def _words(apart: Apart) -> str:
    whole = sum(apart.counts) + apart.broken
    said = []
    for at, count in enumerate(apart.counts):
        if count:
            said.append(f"{_share(count / whole)} {f'{_span(at)} ulp apart' if at else 'equal'}")
    if apart.broken:
        said.append(f"{_share(apart.broken / whole)} NaN in one of the two")
    return f"{', '.join(said)}; largest {apart.largest:,} ulp"
