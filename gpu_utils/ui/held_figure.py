"""Which rank holds which piece, before and after a collective or step by step: drawn from what real ranks returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, picture, small, svg, text

MOST = 6
"""Ranks and pieces that marks can tell apart: as many digits, of as many bits, are exact in an int64."""

_CELL, _HIGH, _NAME, _HEAD, _GAP, _WIDTH = 52.0, 22.0, 52.0, 34.0, 26.0, 900.0


def marked(rank: int, pieces: int) -> Tensor:
    """int64 (pieces,): one number for each piece, which says of a sum whose pieces are in it.

    Piece number p of rank r is 2^r in the p-th digit to the base 2^6.

    >>> marked(1, 3).tolist(), held(marked(0, 3) + marked(2, 3))
    ([2, 128, 8192], ['AC0', 'AC1', 'AC2'])
    """
    if not (0 <= rank < MOST and 1 <= pieces <= MOST):
        raise BadArgument(f"rank {rank} with {pieces} pieces; expected a rank below {MOST} and 1 to {MOST} pieces")
    return torch.tensor([2**rank * 2 ** (MOST * piece) for piece in range(pieces)])


def held(x: Tensor) -> list[str]:
    """Of each number, in words: "C1" is piece 1 of rank 2, "ABD0" the sum of piece 0 of three ranks, "" is nothing."""
    return [_label(int(number)) for number in x.flatten()]


def _label(number: int) -> str:
    digits = [(number >> (MOST * piece)) % 2**MOST for piece in range(MOST)]
    parts = [
        "".join(chr(ord("A") + rank) for rank in range(MOST) if digit >> rank & 1) + str(piece)
        for piece, digit in enumerate(digits)
        if digit
    ]
    return "+".join(parts)


def held_figure(steps: Mapping[str, Sequence[Tensor]]) -> Picture:
    """For each step a grid: a row for a rank, a column for a place of its tensor; in it the pieces that it holds.

    steps  title -> by rank a tensor of marks (`marked`), or what a collective made of them; 0 where there is nothing

    Grey: one rank's piece; light: a sum of some ranks; dark: of all.

    Errors: BadArgument for no step, or another number of ranks in one of them.

    >>> held_figure({"before": [marked(0, 2), marked(1, 2)], "after": [marked(0, 2) + marked(1, 2)] * 2})
    before: rank 0 holds A0, A1; rank 1 holds B0, B1. after: rank 0 holds AB0, AB1; rank 1 holds AB0, AB1.
    """
    ranks = {len(by_rank) for by_rank in steps.values()}
    if len(ranks) != 1 or 0 in ranks:
        raise BadArgument(
            f"{len(steps)} steps with {sorted(ranks)} ranks; expected at least one step, all of one world"
        )
    labels = {title: [held(x) for x in by_rank] for title, by_rank in steps.items()}
    words = " ".join(f"{title}: {_words(rows)}." for title, rows in labels.items())
    (world,) = ranks
    drawn, x, y, high = [], 1.0, 0.0, _HEAD + world * _HIGH
    for title, rows in labels.items():
        wide = _NAME + _CELL * max(1, *(len(row) for row in rows))
        if x > 1 and x + wide > _WIDTH:
            x, y = 1.0, y + high + _GAP
        drawn += _grid(title, rows, x, y, world)
        x += wide + _GAP
    every = "".join(chr(ord("A") + rank) for rank in range(world))
    under = small(
        f"A to {every[-1]} are ranks 0 to {world - 1}, the digit is the number of the piece: B1 is piece 1 of rank 1, "
        f"{every}1 the sum of piece 1 over all ranks. Grey: the piece of one rank; light: a sum of some; dark: of all."
    )
    return picture("", words, svg(_WIDTH, y + high + 4, drawn, words), after=under, spoken=False)


def _words(rows: list[list[str]]) -> str:
    return "; ".join(
        f"rank {rank} holds {', '.join(label or 'nothing' for label in row) or 'nothing'}"
        for rank, row in enumerate(rows)
    )


def _grid(title: str, rows: list[list[str]], left: float, top: float, world: int) -> list[str]:
    drawn = [text(left, top + 13, title, bold=True)]
    for rank, row in enumerate(rows):
        y = top + _HEAD - 10 + rank * _HIGH
        drawn.append(text(left, y + 15, f"rank {rank}", size=11))
        for at, label in enumerate(row):
            x, summed = left + _NAME + at * _CELL, sum(letter.isalpha() for letter in label)
            kind = "empty" if not label else "room" if summed == 1 else "odd" if summed < world else "even"
            drawn += [
                box(x, y, _CELL - 3, _HIGH - 3, kind),
                text(x + _CELL / 2 - 1, y + 14, label, size=11, at="middle"),
            ]
    return drawn
