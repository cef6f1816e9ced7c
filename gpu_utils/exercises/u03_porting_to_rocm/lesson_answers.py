"""Words for what came out of predictions of lesson 03, kept out of the cell that a reader has before them."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_utils.errors import BadArgument

CAUSES = {"invalid device function": "a library built for another chip"}
"""Words of the first error -> its cause."""

FP8_NAMES = ("fp8", "e4m3", "f8f6f4")
"""Parts of the names of matrix instructions for FP8."""


def cause_of(error: str) -> str:
    """The cause that an error's words show. Raises BadArgument for words that none is known for."""
    for words, cause in CAUSES.items():
        if words in error:
            return cause
    raise BadArgument(f"no cause is known for {error!r}; give a line with one of {', '.join(CAUSES)}")


def which_of(right: Mapping[str, bool]) -> str:
    """Which of two are right: "both", "neither" or "only" and its name."""
    names = [name for name, is_right in right.items() if is_right]
    return f"only {names[0]}" if len(names) == 1 else "both" if names else "neither"


def fp8_fate(instruction: str) -> str:
    """What became of two FP8 tiles, by the matrix instruction ("error" where the compiler refused)."""
    if instruction == "error":
        return "refused"
    return "FP8 instructions" if any(part in instruction for part in FP8_NAMES) else "converted"


def after_sm_80(printed: str) -> str:
    """What the script of two targets printed for the second: "compiled, the end", "raised", "nothing"."""
    said = printed.partition("80 compiled")[2]
    return ", ".join(word for word in ("compiled", "raised", "the end") if word in said) or "nothing"


def doctor_findings(printed: str) -> list[str]:
    """The lines with which `w2w doctor --node` judges a setting, and what it says to try."""
    starts = ("WRONG", "could be better", "note", "    try:")
    return [line for line in printed.split("\n") if line.startswith(starts)]
