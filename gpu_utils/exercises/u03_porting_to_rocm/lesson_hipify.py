"""Parts of a hipified project as lesson 03 shows them: words of CUDA, cuttings of files, changes, what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gpu_utils.compiler.hipify import Hipified
from gpu_utils.compiler.leftovers import Leftover
from gpu_utils.errors import BadArgument

LOOKS_LIKE_CUDA = (
    *("cuda_runtime.h", "cuda_bf16.h", "cuda_fp8.h", "cudaStream_t", "cudaMemset", "cudaLaunchKernelEx"),
    *("CUresult", "cuda/pipeline", "cublas", "nccl", "nvtx"),
)

NARROW = ("unsigned vote", "__popc(", "1u <<")
"""Words of a line that holds the votes of a wave, or a bit of one, in 32 bits."""


def cuda_words(files: Mapping[str, str]) -> dict[str, str]:
    """Path -> which of the words of LOOKS_LIKE_CUDA its text has."""
    return {path: ", ".join(word for word in LOOKS_LIKE_CUDA if word in text) for path, text in files.items()}


def between(text: str, start: str, end: str) -> str:
    """What stands from the words `start` up to the next words `end`. Raises BadArgument where one is missing."""
    _, found, rest = text.partition(start)
    inside, ended, _ = rest.partition(end)
    if not (found and ended):
        raise BadArgument(f"the text has no {(end if found else start)!r}; give words that stand in it")
    return start + inside


def hipified_part(files: Mapping[str, str], result: Hipified, path: str, start: str, end: str) -> tuple[str, str, str]:
    """A part of a file before and after hipify, between the words `start` and `end`, and a title: for a DiffFigure.

    files: the CUDA project; path: of the file after hipify. Raises BadArgument where the words are not in both texts.
    """
    origin = result.origin[path]
    before, after = (between(text, start, end) for text in (files[origin], result.files[path]))
    return before, after, f"{origin} -> {path}"


def span(text: str, word: str) -> str:
    """The lines from the first with a word to the line after the last. Raises BadArgument where none has it."""
    lines = text.split("\n")
    having = [number for number, line in enumerate(lines) if word in line]
    if not having:
        raise BadArgument(f"no line has {word!r}; give a word of the text")
    return "\n".join(lines[having[0] : having[-1] + 2])


def included(text: str, word: str) -> str:
    """The first header with a word that a text includes: `#include <x/word.h>`. Raises BadArgument for none."""
    for line in text.split("\n"):
        if line.startswith("#include") and word in line:
            return line.split()[1].strip('<>"')
    raise BadArgument(f"no header with {word!r} is included; give a part of its name")


def by_kind(found: Sequence[Leftover]) -> dict[str, dict[str, object]]:
    """Kind of leftover -> how many, whether certain, the first place, and what it is."""
    rows = {}
    for kind, times in Counter(one.kind for one in found).items():
        first = next(one for one in found if one.kind == kind)
        place = f"{first.file.removeprefix('csrc/')}:{first.line}"
        rows[kind] = {"words": times, "certain": first.certain, "for example": place, "what it is": first.why}
    return rows


def narrow_votes(text: str, start: str, end: str) -> dict[int, str]:
    """Number in the whole text -> line that holds votes in 32 bits, between the words `start` and `end` (`between`)."""
    part = between(text, start, end)
    first = text[: text.index(start)].count("\n") + 1
    numbered = enumerate(part.split("\n"), first)
    return {number: line.strip() for number, line in numbered if any(words in line for words in NARROW)}
