"""A dispatch as a picture: tokens at their sources, rows at the owners of their experts, a line for each copy."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, path, picture, small, svg, text

_LEFT, _RIGHT, _WIDE = 90.0, 560.0, 700.0
_ROW, _GAP, _HEAD = 22.0, 14.0, 24.0
_LEGEND = "A strong line crosses from one rank to another and costs bytes; a faint one stays. e3: expert 3 of all."


def dispatch_figure(experts: Sequence[Tensor], num_experts: int, names: Sequence[str]) -> Picture:
    """Tokens with their experts on the left, rows by rank and expert on the right, in the order of 11.dispatch.

    experts  of each rank, int64 (tokens, k); names: of all tokens, rank by rank

    Errors: BadArgument where names are not as many as tokens, or the ranks do not divide the experts.

    >>> import torch
    >>> dispatch_figure([torch.tensor([[2, 0], [0, 3]]), torch.tensor([[3, 0]])], 4, "abc")
    rank 0: e0 gets a, b, c; e1 gets nothing. rank 1: e2 gets a; e3 gets b, c.
    """
    world, total = len(experts), sum(len(chosen) for chosen in experts)
    if len(names) != total or num_experts % world:
        raise BadArgument(
            f"{len(names)} names for {total} tokens, {num_experts} experts on {world} ranks; expected a name for each "
            "token, and as many experts on each rank"
        )
    parts, places, y = [text(_LEFT, 14, "tokens and their experts", bold=True)], [], _HEAD
    at = 0
    for rank, chosen in enumerate(experts):
        parts.append(text(8, y + 15, f"rank {rank}", bold=True))
        if not len(chosen):
            parts.append(text(_LEFT, y + 15, "no tokens"))
        for row in chosen.tolist():
            said = f"{names[at]}:  {', '.join(f'e{expert}' for expert in row)}"
            parts += [box(_LEFT, y, 120, _ROW - 3, "room"), text(_LEFT + 8, y + 14, said)]
            places.append((rank, at, row, y + _ROW / 2 - 1))
            y, at = y + _ROW, at + 1
        y += _GAP + (0 if len(chosen) else _ROW)
    left_end, y, words = y, _HEAD, []
    parts.append(text(_RIGHT, 14, "rows, by expert", bold=True))
    each = num_experts // world
    for owner in range(world):
        parts.append(text(_WIDE + 2, y + 15, f"rank {owner}", bold=True))
        gets = []
        for expert in range(owner * each, (owner + 1) * each):
            coming = [(rank, at, height) for rank, at, row, height in places if expert in row]
            for rank, at, height in coming:
                parts += [box(_RIGHT, y, 60, _ROW - 3, "room"), text(_RIGHT + 30, y + 14, names[at], at="middle")]
                parts.append(text(_RIGHT + 70, y + 14, f"e{expert}"))
                kind = "grid" if rank == owner else "hue"
                parts.append(path([(_LEFT + 120, height), (_RIGHT, y + _ROW / 2 - 1)], kind))
                y += _ROW
            if not coming:
                parts.append(text(_RIGHT + 70, y + 14, f"e{expert}: nothing"))
                y += _ROW
            gets.append(f"e{expert} gets {', '.join(names[at] for _, at, _ in coming) or 'nothing'}")
        words.append(f"rank {owner}: {'; '.join(gets)}.")
        y += _GAP
    drawing = svg(_WIDE + 60, max(y, left_end), parts, " ".join(words))
    return picture("", " ".join(words), drawing, after=small(_LEGEND), spoken=False)
