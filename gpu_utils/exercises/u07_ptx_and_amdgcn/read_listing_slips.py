"""Readings of listings with one mistake each, and the right one. Plain Python: they run wherever an answer runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

COMMENTS = {"nvidia": r"/\*.*?\*/|//[^\n]*", "amd": r"/\*.*?\*/|(?://|;)[^\n]*"}
LOADS = {"nvidia": r"(ld|ldu)\b.*\.global\b", "amd": r"(global|buffer)_load_"}
_BY_NAME = r"(global|buffer)_load_lds_|global_load_async_to_lds_|tensor_load_to_lds"
COPIES = {
    "nvidia": r"cp\.async\.(ca|cg)\.|cp\.async\.bulk\.(tensor\.\dd\.)?shared",
    "amd": _BY_NAME + r"|(global|buffer)_load_.*\slds$",
}
NO_WIDTH = r"cp\.async\.bulk|tensor_load_to_lds"
MATRIX = {"nvidia": r"(mma|wmma\.mma|wgmma\.mma_async|tcgen05\.mma)\b", "amd": r"v_(mfma|smfmac|wmma|swmmac)_"}
BARRIERS = {"nvidia": r"bar(rier)?(\.cta)?\.sync\b", "amd": r"s_barrier(_wait)?\b(?!_)"}
OLD_NAMES = {"byte": 8, "short": 16, "dword": 32, "dwordx2": 64, "dwordx3": 96, "dwordx4": 128}

Patterns = Mapping[str, str]


def _vendor(text: str) -> str:
    return "amd" if ".amdgcn_target" in text else "nvidia"


def _statements(
    text: str, vendor: str, comments: bool, per_line: bool, predicated: bool, left_out: Patterns = COMMENTS
) -> Iterator[str]:
    """Instructions with their operands, beginning at the mnemonic."""
    if not comments:
        text = re.sub(left_out[vendor], "", text, flags=re.DOTALL)
    if vendor == "amd":
        text = re.sub(r"\.amdgpu_metadata.*?\.end_amdgpu_metadata", "", text, flags=re.DOTALL)
        lines = text.split("\n")
    else:
        lines = text.split("\n") if per_line else re.split(r"[;\n]", text)
    for line in lines:
        line = re.sub(r"^\s*(//|/\*|;)", "", line) if comments else line
        line = re.sub(r"^[\s{]*(?:[\w$.]+:(?!:))?[\s{]*", "", line)
        if predicated:
            line = re.sub(r"^@!?%?\w+\s+", "", line)
        yield " ".join(line.split())


def width(statement: str, old: Mapping[str, int] = OLD_NAMES, new: bool = True, vectors: bool = True) -> int:
    """Bits that a lane moves."""
    mnemonic = statement.split(" ", 1)[0]
    if mnemonic.startswith("cp.async"):
        size = re.search(r"\],\s*(\w+)", statement.partition(",")[2])
        return 8 * int(size[1], 0) if size else 0
    if "." in mnemonic:
        count, bits = re.search(r"\.v(\d)\.", mnemonic), re.search(r"[bfsu](\d+)$", mnemonic)
        return (int(count[1]) if count and vectors else 1) * (int(bits[1]) if bits else 0)
    found = re.search(r"_[us]?(byte|short|dword(?:x\d)?)", mnemonic)
    if found:
        return old[found[1] if vectors else found[1][:5]]
    found = re.search(r"_[biu](\d+)$", mnemonic)
    return int(found[1]) if found and new else 0


def bytes_of_cp(statement: str) -> int:
    return width(statement) // (8 if statement.startswith("cp.") else 1)


def _mean(counts: Mapping[str, Any], widths: list[int]) -> float:
    return sum(widths) / len(widths) if widths else 0.0


def reading(
    comments: bool = False,
    per_line: bool = False,
    predicated: bool = True,
    first_kernel: bool = False,
    left_out: Patterns = COMMENTS,
    loads: Patterns = LOADS,
    copies: Patterns = COPIES,
    matrix: Patterns = MATRIX,
    barriers: Patterns = BARRIERS,
    anywhere: bool = False,
    bits: Callable[[str], int] = width,
    scale: int = 1,
    of_copies: bool = True,
    no_width: str = NO_WIDTH,
    score: Callable[[Mapping[str, Any], list[int]], float] = _mean,
    last: bool = False,
    both: bool = False,
    widest_of_all: bool = False,
) -> Callable[[dict[str, str]], dict[str, Any]]:
    """An answer.

    comments, per_line, predicated, first_kernel, left_out  how statements are found: see `_statements`
    loads, copies, matrix, barriers  what counts, by vendor; anywhere: all lines in which such words stand
    bits, scale     of a load or a copy; divided by scale in the end
    of_copies       whether copies count in the score; no_width: those that never do
    score, last     what is best of counts and widths; of equals the last
    both            whether a copy is a load too; widest_of_all: whether bits is of copies too
    """

    def counts_of(text: str) -> tuple[dict[str, Any], float]:
        vendor = _vendor(text)
        if first_kernel:
            text = re.split(r"\bs_endpgm\b|\bret;", text)[0]
        if anywhere:
            statements = [" ".join(line.split()) for line in text.split("\n")]
        else:
            statements = list(_statements(text, vendor, comments, per_line, predicated, left_out))

        def those(pattern: str) -> list[str]:
            find = re.search if anywhere else re.match
            return [statement for statement in statements if find(pattern, statement)]

        copied = those(copies[vendor])
        loaded = [statement for statement in those(loads[vendor]) if both or statement not in copied]
        widths = [bits(statement) // scale for statement in loaded]
        counts = {
            "vendor": vendor,
            "loads": len(loaded),
            "bits": max(widths, default=0),
            "copies": len(copied),
            "matrix": len(those(matrix[vendor])),
            "barriers": len(those(barriers[vendor])),
        }
        sized = [statement for statement in copied if not re.match(no_width, statement)]
        widths += (
            [bits(statement) // scale for statement in sized] if of_copies and not (both and vendor == "amd") else []
        )
        counts["bits"] = max(widths, default=0) if widest_of_all else counts["bits"]
        return counts, score(counts, widths)

    def read_listing(listings: dict[str, str]) -> dict[str, Any]:
        read = {name: counts_of(text) for name, text in listings.items()}
        names = list(reversed(read)) if last else list(read)
        return {
            "counts": {name: counts for name, (counts, _) in read.items()},
            "best": max(names, key=lambda name: read[name][1]),
        }

    return read_listing


def _tma_is_nothing(statement: str) -> int:
    return 0 if re.match(NO_WIDTH, statement) else width(statement)


def _counted(counts: Mapping[str, Any], widths: list[int]) -> float:
    return -float(len(widths))


def _widest(counts: Mapping[str, Any], widths: list[int]) -> float:
    return float(max(widths, default=0))


def _sum(counts: Mapping[str, Any], widths: list[int]) -> float:
    return float(sum(widths))


def _also(patterns: Patterns, nvidia: str = "", amd: str = "") -> Patterns:
    return {vendor: patterns[vendor] + more for vendor, more in (("nvidia", nvidia), ("amd", amd))}


NEVER = r"(?!)"

right = reading()
comments_too = reading(comments=True)
words_anywhere = reading(anywhere=True, bits=lambda statement: 0 if "cp." in statement else _loosely(statement))
no_block_comments = reading(left_out={"nvidia": r"//[^\n]*", "amd": r"(?://|;)[^\n]*"})
no_semicolon_comments = reading(left_out={**COMMENTS, "amd": COMMENTS["nvidia"]})
no_predicates = reading(predicated=False)
first_kernel_only = reading(first_kernel=True)
one_in_a_line = reading(per_line=True)
arguments_too = reading(loads=_also(LOADS, r"|ld\.param\b", r"|s_(buffer_)?load_"))
shared_too = reading(loads=_also(LOADS, r"|ld\.shared\b", r"|ds_load_|ds_read_"))
scratch_too = reading(loads=_also(LOADS, r"|ld\.local\b", r"|scratch_load_"))
waits_are_copies = reading(copies=_also(COPIES, r"|cp\.async\.(wait|commit|mbarrier|bulk\.(wait|commit))"))
stores_are_copies = reading(copies=_also(COPIES, r"|cp\.async\.bulk\.(tensor\.\dd\.)?global", r"|tensor_store_"))
lds_at_the_end = reading(copies={**COPIES, "amd": _BY_NAME})
copies_without_tma = reading(copies={"nvidia": r"cp\.async\.(ca|cg)\.", "amd": COPIES["amd"].replace("tensor_", "no_")})
any_wgmma = reading(matrix=_also(MATRIX, r"|wgmma|tcgen05"))
any_matrix = reading(matrix=_also(MATRIX, r"|ldmatrix|stmatrix", r"|ds_read_b64_tr|ds_load_tr|global_load_tr"))
mfma_only = reading(matrix={"nvidia": r"mma\b", "amd": r"v_mfma_"})
signals_too = reading(barriers=_also(BARRIERS, "", r"|s_barrier_signal"))
no_new_barrier = reading(barriers={**BARRIERS, "amd": r"s_barrier$"})
any_barrier = reading(barriers=_also(BARRIERS, r"|bar\.warp|mbarrier"))
fences_too = reading(
    barriers=_also(BARRIERS, r"|fence|membar", r"|s_waitcnt|s_wait_|buffer_inv|buffer_gl0_inv|global_inv")
)
no_vectors = reading(bits=lambda statement: width(statement, vectors=False))
old_names_only = reading(bits=lambda statement: width(statement, new=False))
bytes_for_bits = reading(scale=8)
bits_of_copies = reading(widest_of_all=True)
copies_are_loads = reading(both=True)
hexadecimal = reading(bits=lambda statement: width(re.sub(r"\b0x\w+", "0", statement)))
copies_in_bytes = reading(bits=bytes_of_cp)
best_by_widest = reading(score=_widest)
best_by_fewest = reading(score=_counted)
best_by_sum = reading(score=_sum)
best_of_loads = reading(of_copies=False)
tma_in_the_mean = reading(no_width=NEVER, bits=_tma_is_nothing)
last_of_equals = reading(last=True)


def _loosely(line: str) -> int:
    """The width of whatever stands in a line that has the word."""
    found = re.search(r"(ld|ldu)\b\S*\.global\S*|(global|buffer)_load_\w+", line)
    return width(found[0]) if found else 0
