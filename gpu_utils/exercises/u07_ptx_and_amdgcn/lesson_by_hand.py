"""What lesson 07 does with kernels that it writes by hand: assemble, launch, step, and say how a launch ended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import W2WError
from gpu_utils.exercises.u07_ptx_and_amdgcn import on_device
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import amdgcn_kernel, assembled, ptx_kernel
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.trace import Trace

STEP_LIMIT = 2_000
"""Rounds of one loop after which a launch ends."""

_MASKS_OF_32 = (
    (r"s_and_saveexec_b64 s\[(\d+):\d+\], vcc\b", r"s_and_saveexec_b32 s\1, vcc_lo"),
    (r"s_mov_b64 exec, s\[(\d+):\d+\]", r"s_mov_b32 exec_lo, s\1"),
    (r"\bvcc\b", "vcc_lo"),
)
_WAITS_OF_GFX12 = (
    (r"s_waitcnt vmcnt\((\d+)\)", r"s_wait_loadcnt \1"),
    (r"(s_load.*\n(?:.*\n)*?)(\s*)s_waitcnt lgkmcnt\(0\)", r"\1\2s_wait_kmcnt 0"),
    (r"s_waitcnt lgkmcnt\((\d+)\)", r"s_wait_dscnt \1"),
    (r"(?m)^(\s*)s_barrier$", r"\1s_barrier_signal -1\n\1s_barrier_wait -1"),
)
_GFX12 = ("gfx1201", "gfx1250")


Sanitize = bool | str | Sequence[str]
"""As `virtual_gpu` takes it."""


@dataclass(frozen=True)
class ByHand:
    """A kernel written by hand for one target, which the vendor's assembler took.

    asm: the whole module, PTX or AMDGCN; name: of the kernel
    """

    target: str
    name: str
    asm: str

    def run(self, block: int, args: Sequence[Any], grid: int = 1, sanitize: Sanitize = True) -> Launch:
        """Launch it on its virtual GPU, under the sanitizers. args: CPU tensors and whole numbers. Raises its error."""
        with virtual_gpu(self.target, sanitize=sanitize, step_limit=STEP_LIMIT) as gpu:
            return gpu.load(self.asm).launch(self.name, grid, block, args)

    def traced(self, block: int, args: Sequence[Any]) -> Trace:
        """What the first wave executes, for `lesson.WaveFigure` and `lesson.waits`. No sanitizer looks on."""
        with virtual_gpu(self.target, step_limit=STEP_LIMIT) as gpu, gpu.trace() as trace:
            gpu.load(self.asm).launch(self.name, 1, block, args)
        return trace

    def ended(self, block: int, args: Sequence[Any], expected: Tensor, sanitize: bool = True) -> str:
        """How a launch ended: "right", "wrong", or the error in its own words, without the place of the lane.

        args  the last one is the output
        """
        try:
            self.run(block, args, sanitize=sanitize)
        except W2WError as problem:
            return shortened(problem)
        return "right" if torch.allclose(args[-1], expected) else "wrong"

    def on_chip(self, block: int, args: Sequence[Any], output: Tensor, expected: Tensor) -> str:
        """PTX on this machine's NVIDIA GPU, by the driver's own assembler: the chip, and "right" or "wrong".

        output  the one of the arguments that it writes. Without such a GPU a sentence says so.
        """
        if not (chip := on_device.chip()):
            return "no NVIDIA GPU here; the virtual ones have executed it"
        got = on_device.launch(self.asm, self.name, 1, block, list(args), output)
        return f"{chip}: {'right' if torch.allclose(got, expected) else 'wrong'}"


def by_hand(name: str, parameters: str, body: str, target: str, shared: int = 0, built_for: str = "") -> ByHand:
    """A kernel for a target from the body that was written for it. Raises CompileFailed where the assembler refuses it.

    parameters  names between blanks: one that ends in `_ptr` is an address, another one a number
    shared      bytes of LDS of a block, on AMD; PTX declares them itself
    built_for   what stands behind `.target`; "": sm_80, and sm_90 where PTX needs it (mbarriers, bulk copies)
    """
    if TARGETS[target].vendor == "amd":
        return ByHand(target, name, assembled(amdgcn_kernel(name, parameters, body, target, shared), target))
    oldest = "sm_90" if re.search(r"mbarrier|\.bulk", body) else "sm_80"
    return ByHand(target, name, assembled(ptx_kernel(name, parameters, body, built_for or oldest), target))


def dialect(body: str, target: str) -> str:
    """AMDGCN as gfx942 spells it, in the words of another AMD target: masks of 32 lanes, and gfx12's waits.

    The first lgkmcnt(0) behind a scalar load becomes kmcnt, another one dscnt.
    """
    rules = (*(_MASKS_OF_32 if TARGETS[target].lanes == 32 else ()), *(_WAITS_OF_GFX12 if target in _GFX12 else ()))
    for pattern, text in rules:
        body = re.sub(pattern, text, body)
    return body


def shortened(problem: W2WError) -> str:
    """
    >>> shortened(W2WError("kernel k: `a` reads v1 too early, in program (0, 0, 0), wave 0, lane 0 (thread 0)"))
    'W2WError: `a` reads v1 too early'
    """
    text = re.sub(r"^kernel \w+(?: \(.*?\))?: (?=`|program|the )", "", str(problem))
    text = re.sub(r",? ?in program \(\d+, \d+, \d+\), wave \d+, lane \d+ \(thread \d+\)", "", text)
    text = re.sub(r"program \(\d+, \d+, \d+\), wave (\d+), lane \d+ \(thread \d+\)", r"wave \1", text)
    text = re.sub(r" \([^\s:`]+\.py:\d+: .*?\)(?= is | has )|(?<=; )[^\s:`]+\.py:\d+: ", "", text)
    text = re.sub(r"\{%r\d+(?:,%r\d+)+\}", "{...}", text)
    return f"{type(problem).__name__}: {text}"
