"""What lesson 07 does with listings that Triton made: the lines of a loop that matter, and a launch without some."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.reading import HasAssembly, in_loops
from gpu_utils.compiler.triton import Compiled
from gpu_utils.errors import W2WError
from gpu_utils.exercises.u07_ptx_and_amdgcn.lesson_by_hand import STEP_LIMIT, shortened
from gpu_utils.virtual import virtual_gpu

WORDS = (
    *("cp.async", "bar.sync", "mma", "mfma", "fence", "mbarrier", "tcgen05"),
    *("vmcnt", "s_wait_loadcnt", "asynccnt", "s_barrier", "buffer_load", "global_load", "ds_write", "ds_store"),
)
"""Words of the instructions that copy, wait, meet or multiply."""


def loop_lines(compiled: HasAssembly) -> list[dict[str, str | int]]:
    """The instructions of a kernel's loops that copy, wait, meet or multiply, in order: rows for `lesson.table`.

    Several of one mnemonic in a row are one line with their number; long lists of registers are left out.
    """
    rows: list[dict[str, str | int]] = []
    last = ""
    for one in in_loops(compiled):
        if not any(word in one.text for word in WORDS):
            continue
        if one.mnemonic == last:
            rows[-1]["times"] = int(rows[-1]["times"]) + 1
        else:
            text = re.sub(r"\{ ?%r\d+.*", "...", one.text)
            rows.append({"instruction": re.sub(r"^@!?%\w+ ", "", text), "times": 1})
        last = one.mnemonic
    return rows


def named_registers(compiled: HasAssembly) -> int:
    """Registers of 32 bits for each lane that a listing names: declared ones of PTX, VGPRs and AGPRs of AMDGCN.

    PTX's predicates are left out; one of 64 bits counts twice, one of 16 bits as a whole one.
    """
    if TARGETS[compiled.target].vendor == "nvidia":
        declared = re.findall(r"^\s*\.reg \.[a-z]+(\d+)\s+%\w+<(\d+)>", compiled.asm, re.MULTILINE)
        return sum(int(count) * max(1, int(bits) // 32) for bits, count in declared)
    code = compiled.asm.partition("s_endpgm")[0]
    kinds = {"v": 0, "a": 0}
    for kind, single, last in re.findall(r"(?<![\w.])([va])(?:(\d+)\b|\[\d+:(\d+)\])", code):
        kinds[kind] = max(kinds[kind], int(single or last) + 1)
    return sum(kinds.values())


def ended_without(compiled: Compiled, word: str, args: Sequence[Any]) -> str:
    """One program of a kernel of Triton's, launched under the sanitizers without the lines that hold a word.

    word  of the machine code, "s_barrier"; "" leaves everything in
    args  tensors and numbers of the machine code: of the arguments those that were not constants when it was compiled

    Returns "no report", or the error in its own words.
    """
    lines = [line for line in compiled.asm.split("\n") if not word or word not in line]
    threads = compiled.num_warps * compiled.limits.lanes
    try:
        with virtual_gpu(compiled.target, sanitize=True, step_limit=STEP_LIMIT) as gpu:
            module = gpu.load("\n".join(lines))
            module.launch(compiled.name, 1, threads, [*args, None, None], shared=compiled.shared)
    except W2WError as problem:
        return shortened(problem)
    return "no report"
