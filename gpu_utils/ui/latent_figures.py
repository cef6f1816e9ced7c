"""What a token leaves in a cache under each kind of attention, to scale, and the two ways to bracket a score."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, picture, small, svg, text

_WIDTH, _LEFT, _GAP = 700.0, 150.0, 12.0


def cache_figure(kept: Mapping[str, Mapping[str, int]], bytes_per_number: float = 2) -> Picture:
    """The cache of one token in one layer: for each kind of attention its parts, areas to scale.

    kept  kind -> {part: numbers}, such as {"MLA": {"latent": 512, "rope": 64}}

    Raises BadArgument where nothing is kept.

    >>> cache_figure({"GQA, 8 heads": {"keys": 1024, "values": 1024}, "MLA": {"latent": 512, "rope": 64}})
    GQA, 8 heads: keys 1,024, values 1,024; 4,096 bytes. MLA: latent 512, rope 64; 1,152 bytes.
    """
    totals = {kind: sum(parts.values()) for kind, parts in kept.items()}
    if not totals or min(totals.values()) <= 0:
        raise BadArgument(f"{dict(kept)} keeps nothing; expected a kind and its parts, with numbers above 0")
    said = [
        f"{kind}: {', '.join(f'{part} {n:,}' for part, n in parts.items())}; "
        f"{totals[kind] * bytes_per_number:,.0f} bytes."
        for kind, parts in kept.items()
    ]
    room = _WIDTH - _LEFT
    area = room * 150 / max(totals.values())  # the largest fills the width, 150 high
    drawn, y = [], 4.0
    for kind, parts in kept.items():
        high = min(max(sqrt(totals[kind] * area / 16), 14.0, totals[kind] * area / room), 150.0)
        x = _LEFT
        drawn.append(text(_LEFT - 10, y + high / 2 + 4, kind, at="end"))
        for number, n in enumerate(parts.values()):
            wide = n * area / high
            drawn.append(box(x, y, wide, high, ("even", "odd")[number % 2]))
            x += wide
        drawn.append(text(x + 8, y + high / 2 + 4, f"{totals[kind] * bytes_per_number:,.0f} bytes", size=11))
        y += high + _GAP
    words = " ".join(said)
    legend = (
        "One token in one layer; equal areas are equal numbers of bytes. "
        "Dark: keys, or the latent vector. Light: values, or the rope key."
    )
    return picture("", words, svg(_WIDTH + 90, y, drawn, words), after=small(legend), spoken=False)


def bracket_figure(tokens: int, rank: int, key: int) -> Picture:
    """The two ways to multiply a cache (tokens x rank), a matrix (rank x key) and a query (key), with what each makes.

    >>> bracket_figure(4096, 512, 128)
    A key for each token first: 4,096 x 512 times 512 x 128 makes 4,096 x 128. \
The query first: 512 x 128 times 128 makes 512.
    """
    high = {"tokens": 130.0, "rank": 62.0, "key": 26.0, "one": 7.0}
    said = (
        f"A key for each token first: {tokens:,} x {rank:,} times {rank:,} x {key:,} makes {tokens:,} x {key:,}. "
        f"The query first: {rank:,} x {key:,} times {key:,} makes {rank:,}."
    )
    drawn: list[str] = []
    for row, (side, title, made) in enumerate(
        (("left", "keys first", ("tokens", "key")), ("right", "the query first", ("rank", "one")))
    ):
        x, top = 130.0, 34.0 + row * 190
        drawn.append(text(0, top + 58, f"{side}:", bold=True))
        drawn.append(text(0, top + 76, title, bold=True))
        for number, (tall, wide, size, name) in enumerate(
            (
                ("tokens", "rank", f"{tokens:,} × {rank}", "latent vectors"),
                ("rank", "key", f"{rank} × {key}", "W_UK, transposed"),
                ("key", "one", f"{key}", "query"),
            )
        ):
            first = number in ((0, 1) if row == 0 else (1, 2))
            drawn.append(box(x, top, high[wide], high[tall], "even" if first else "room"))
            drawn.append(text(x, top - 22, name, size=11))
            drawn.append(text(x, top - 8, size, size=11))
            x += max(high[wide], (120, 110, 60)[number])
        drawn.append(text(x, top + 68, "makes"))
        drawn.append(box(x + 60, top, high[made[1]], high[made[0]], "now"))
        drawn.append(text(x + 60, top - 22, ("keys", "absorbed query")[row] + ", for each head", size=11))
        drawn.append(text(x + 60, top - 8, f"{tokens:,} × {key}" if row == 0 else f"{rank}", size=11))
    legend = "Blue: the two factors that are multiplied first. Framed in black: what they make. Sides are not to scale."
    return picture("", said, svg(_WIDTH, 370, drawn, said), after=small(legend), spoken=False)
