"""Which bank of shared memory serves which lanes, and in which pass, compact enough for several targets."""

from __future__ import annotations

from html import escape

from gpu_utils.analytic.access import BankAccess, bank_conflicts
from gpu_utils.analytic.expression import addresses
from gpu_utils.chips import TARGETS
from gpu_utils.ui.explore.access import schedule
from gpu_utils.ui.explore.drawing import Picture, beside, box, count, heading, path, picture, small, svg, text, wave

_LEFT, _WIDTH, _HIGH = 52.0, 704.0, 13.0
_MOST_PASSES = 8


def bank_figure(expression: str, *targets: str, element_bytes: int = 4, access: str = "read") -> Picture:
    """The passes of one access to shared memory (LDS) on each target, below each other.

    expression     the index of each lane, such as "lane * 32" or "(lane % 8) * 33"; None makes a lane inactive
    targets        "sm_80", "gfx942", "gfx950", ...
    element_bytes  of an element, which is what a lane accesses; access: "read" or "write"

    A column is a bank, a row a pass, a number the lane that is served there ("+": others want the same word, and get it
    at once). Rules and sources: `gpu_utils.chips.banks`.
    Errors: BadArgument for an expression that cannot be read, UnknownName for a target.

    >>> bank_figure("lane * 2", "sm_80")
    sm_80, a warp of 32 lanes, 32 banks: 2 passes, 1 would do, so 1 conflict. The busiest bank is 0, for lanes 0, 16.
    """
    return beside(*(_one(name, expression, element_bytes, access) for name in targets))


def _one(name: str, expression: str, element_bytes: int, access: str) -> Picture:
    target = TARGETS[name]
    wanted = addresses(expression, target.lanes, element_bytes)
    found = bank_conflicts(wanted, access_bytes=element_bytes, target=name, access=access)
    banks = found.served.banks
    title = f"{name}, a {wave(target.vendor)} of {target.lanes} lanes, {banks} banks"
    verdict = _verdict(found)
    words = f"{title}: {verdict}"
    drawing = svg(_LEFT + _WIDTH + 2, *_drawn(found), words, least=560)
    under = f'<p role="status">{escape(verdict)}</p>{small(f"Source: {found.served.source}")}'
    return picture(target.vendor, words, heading(title), drawing, after=under, spoken=False)


def _verdict(found: BankAccess) -> str:
    if not found.cycles:
        return "no lane is active."
    passes = f"{count(found.cycles, 'pass')}, {found.least} would do"
    if not found.conflicts:
        return f"{passes}: no conflict."
    words: dict[int, dict[int, int]] = {}
    for lane, one in enumerate(found.lanes):
        for word, bank in zip(one.words, one.banks, strict=True):
            words.setdefault(bank, {}).setdefault(word, lane)
    bank = max(words, key=lambda each: len(words[each]))
    lanes = list(words[bank].values())
    named = ", ".join(map(str, lanes[:4])) + (f" and {len(lanes) - 4} more" if len(lanes) > 4 else "")
    return f"{passes}, so {count(found.conflicts, 'conflict')}. The busiest bank is {bank}, for lanes {named}."


def _drawn(found: BankAccess) -> tuple[float, list[str]]:
    served, banks = schedule(found), found.served.banks
    rows = min(found.cycles, _MOST_PASSES)
    cell = _WIDTH / banks
    parts = [text(0, 11, "bank", size=10)]
    parts += [
        text(_LEFT + (bank + 0.5) * cell, 11, bank, size=8, at="middle")
        for bank in range(0, banks, 1 if cell > 18 else 2)
    ]
    end, below = _LEFT + banks * cell, 16 + rows * _HIGH
    parts += [path([(_LEFT, 16 + row * _HIGH), (end, 16 + row * _HIGH)], "grid") for row in range(rows + 1)]
    parts += [path([(_LEFT + bank * cell, 16), (_LEFT + bank * cell, below)], "grid") for bank in range(banks + 1)]
    for row in range(rows):
        y = 16 + row * _HIGH
        parts.append(text(0, y + 10, f"pass {row}", size=10))
        for bank in range(banks):
            lanes = served.get((row, bank), [])
            if lanes:
                kind = ("even", "odd")[found.lanes[lanes[0]].group % 2]
                parts.append(box(_LEFT + bank * cell, y, cell, _HIGH, kind))
                label = f"{lanes[0]}+" if len(lanes) > 1 else str(lanes[0])
                size = 8 if cell > 18 else 7 if len(label) < 3 else 6
                parts.append(text(_LEFT + (bank + 0.5) * cell, y + 10, label, size=size, at="middle"))
    if found.cycles > rows:
        parts.append(text(_LEFT, below + 13, f"... and {found.cycles - rows} more passes", size=11))
        below += 18
    return below + 2, parts
