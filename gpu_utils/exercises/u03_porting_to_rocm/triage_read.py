"""Reading a collected log of 03.triage: the signs of each cause, and the first of them in time."""

from __future__ import annotations

import re
from typing import Any

from gpu_utils.exercises.u03_porting_to_rocm.triage_tables import TRUTHS

Verdict = dict[str, Any]

SIGNS: tuple[tuple[str, str], ...] = (
    ("couldn't allocate output register", "ptx_constraint"),
    ("sizeof(MaskT)", "mask_of_32_bits"),
    ("'warpSize' cannot be used", "warp_size_constant"),
    ("OutOfResources: out of resource", "lds_exceeded"),
    ("when stream is capturing", "call_in_capture"),
    ("torch.version.hip None", "wrong_build"),
    ("finding fastest for", "tuning_left_on"),
    ("e4m3fnuz, scale = amax / 448", "fp8_maximum"),
    ("P2P/IPC: handle", "mask_for_each_rank"),
    ("export HSA_OVERRIDE_GFX_VERSION", "foreign_override"),
    ("export HIP_VISIBLE_DEVICES", "masks_compose"),
    ("invalid device function", "missing_target"),
    ("Permission denied", "driver"),
    ("in bfloat16: step 3 loss nan", "learning_rate"),
    ("HIP out of memory", "out_of_memory"),
    ("Connection refused", "network"),
)
"""Words that only one of the failures leaves behind; where several stand in one line, the first counts."""

FIX_OF = {truth.cause: truth.fix for truth in TRUTHS.values()}

_LISTED = "export HIP_VISIBLE_DEVICES"
_LIST = re.compile(r"(ROCR|HIP)_VISIBLE_DEVICES=([\d,]+)")


def lines_of(log: str) -> tuple[str, list[tuple[str, int, str, str]]]:
    """(the job that failed, its and others' lines as (time, number, job, text))."""
    header, *rows = log.splitlines()
    return header.split()[1], [_split(row, number) for number, row in enumerate(rows, 2)]


def _split(row: str, number: int) -> tuple[str, int, str, str]:
    time, job, text = row.split(" ", 2)
    return time, number, job, text


def read(
    log: str,
    own_only: bool = True,
    in_time: bool = True,
    whole: bool = False,
    numbers: bool = True,
    signs: tuple[tuple[str, str], ...] = SIGNS,
) -> Verdict:
    """The first line that holds a sign, of the job alone and in the order of time unless something is switched off.

    whole: the first sign that the text holds anywhere, in the order of the signs. numbers: two lists of GPUs are a
    sign only if the second names a number that the first has not left.
    """
    job, lines = lines_of(log)
    if own_only:
        lines = [line for line in lines if line[2] == job]
    if in_time:
        lines.sort()
    hits, left, empty = [], None, False
    for _, number, _, text in lines:
        if listed := _LIST.search(text):
            gpus = [int(number) for number in listed[2].split(",")]
            left = len(gpus) if listed[1] == "ROCR" else left
            empty = left is not None and (not numbers or max(gpus) >= left)
        hits += [
            (rank, number, cause)
            for rank, (words, cause) in enumerate(signs)
            if words in text and (words != _LISTED or empty)
        ]
    if not hits:
        return verdict("learning_rate", 2)
    _, number, cause = min(hits) if whole else hits[0]
    return verdict(cause, number)


def triage_reference(log: str) -> Verdict:
    """The verdict by the first sign in time, of the job itself."""
    return read(log)


def verdict(cause: str, line: int) -> Verdict:
    return {"cause": cause, "fix": FIX_OF[cause], "line": line}
