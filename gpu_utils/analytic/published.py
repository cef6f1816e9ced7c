"""Published times of dispatch and combine beside a line on paper: bytes over bandwidth, with no start-up time.

One batch a rank, each token to `k` experts that are spread evenly. What a model like this leaves out shows as the
difference to what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

from gpu_utils.chips.links import LINKS
from gpu_utils.chips.source import Source

_DAY = "2026-11-26"
DEEPEP = Source("deepseek-ai/DeepEP docs/legacy.md, low-latency kernels", _DAY)
MORI = Source("ROCm/mori README.md, MORI-EP latency", _DAY)

TOKENS, WIDTH, K, EXPERTS, NODE = 128, 7168, 8, 256, 8
"""Of both tables: tokens of a rank, numbers of a token, chosen experts of so many, ranks of a node."""


@dataclass(frozen=True)
class Published:
    """One row of a table.

    ranks     over which the experts are spread
    dispatch  measured, µs; combine: measured, µs
    link      of the registry: over which the model lets the bytes go
    per_rank  a token that has several experts on a rank goes there once (mori), not once for each (DeepEP)
    """

    name: str
    ranks: int
    dispatch: float
    combine: float
    link: str
    per_rank: bool
    source: Source

    def paper(self, bytes_of_number: float) -> float:
        """µs on paper: bytes of a rank that leave it (or its node), over the bandwidth of the link.

        >>> round(ROWS["DeepEP, EP64"].paper(1), 1), round(ROWS["mori, EP8"].paper(1), 1)
        (128.5, 12.7)
        """
        bandwidth = LINKS[self.link].bandwidth
        assert bandwidth is not None
        token = WIDTH * bytes_of_number
        if self.per_rank:  # a mesh: what one pair carries
            return 1e6 * TOKENS * _reached(self.ranks) * token / bandwidth
        stays = (NODE if self.ranks > NODE else 1) / self.ranks
        return 1e6 * TOKENS * K * (1 - stays) * token / bandwidth


def _reached(ranks: int) -> float:
    """How likely a token has one of its experts on a certain rank."""
    others = EXPERTS - EXPERTS // ranks
    return 1 - comb(others, K) / comb(EXPERTS, K)


def _deepep(ranks: int, dispatch: float, combine: float) -> Published:
    link = "InfiniBand NDR" if ranks > NODE else "NVLink 4 of H800"
    return Published(f"DeepEP, EP{ranks}", ranks, dispatch, combine, link, False, DEEPEP)


ROWS: Mapping[str, Published] = {
    row.name: row
    for row in (
        _deepep(8, 77, 114),
        _deepep(16, 118, 195),
        _deepep(32, 155, 273),
        _deepep(64, 173, 314),
        _deepep(128, 192, 369),
        _deepep(256, 194, 360),
        Published("mori, EP8", 8, 35, 47, "xGMI of MI300X", True, MORI),
    )
}
"""Name -> row. DeepEP on H800 with one 400 Gb/s InfiniBand card each, mori on 8 MI300X."""


READS_AT_ONCE = 128
_READS = (36.33, 36.35, 36.33, 36.33, 36.49, 36.99, 37.01, 37.09, 37.65, 42.09, 52.11, 74.02, 116.81, 202.70, 374.10)
PUBLISHED_READS: Mapping[int, float] = {8 * 2**at: time for at, time in enumerate((*_READS, 717.56, 1403.64, 2777.76))}
"""Bytes of a message -> µs of 128 reads at once by one MI300X over a Thor2 card, mean (ROCm/mori README, MORI-IO)."""


def published_beside_paper() -> dict[str, dict[str, float]]:
    """Name -> measured and computed µs of dispatch (FP8, a byte) and combine (BF16, two), and their differences."""
    found = {}
    for name, row in ROWS.items():
        there, back = row.paper(1), row.paper(2)
        found[name] = {
            "dispatch, µs": row.dispatch,
            "on paper": round(there, 1),
            "more": round(row.dispatch - there, 1),
            "combine, µs": row.combine,
            "on paper, back": round(back, 1),
            "more, back": round(row.combine - back, 1),
        }
    return found
