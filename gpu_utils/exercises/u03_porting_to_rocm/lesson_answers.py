"""What two predictions of lesson 03 are compared with, kept out of the cell that a reader has before them."""

from __future__ import annotations

from gpu_utils.errors import BadArgument

NARROW = ("unsigned vote", "__popc(", "1u <<")
"""Words of a line that holds the votes of a wave, or a bit of one, in 32 bits."""

CAUSES = {"invalid device function": "a library built for another chip"}
"""Words of the first error -> its cause."""


def narrow_votes(text: str, first: int = 1) -> dict[int, str]:
    """Number -> line of C++ that holds votes in 32 bits; `first` is the number of the text's first line."""
    numbered = enumerate(text.split("\n"), first)
    return {number: line.strip() for number, line in numbered if any(words in line for words in NARROW)}


def cause_of(error: str) -> str:
    """The cause that an error's words show. Raises BadArgument for words that none is known for."""
    for words, cause in CAUSES.items():
        if words in error:
            return cause
    raise BadArgument(f"no cause is known for {error!r}; give a line with one of {', '.join(CAUSES)}")
