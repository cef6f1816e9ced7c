"""08.kv_cache_fp8: tokens of multi-head latent attention into a cache of 656 bytes each."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u08_fp8 import kv_cache_fp8_slips as slips
from gpu_utils.exercises.u08_fp8.kv_cache_fp8_slips import ENTRY, LATENT, ROPE
from gpu_utils.exercises.u08_fp8.shared import (
    CODES,
    SCALES,
    TILE,
    activations,
    dtype_of,
    quantization_problem,
    quantized,
)
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

_AT_SCALES, _AT_ROPE = LATENT, ENTRY - 2 * ROPE


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    T, size = case["tokens"], case["size"]
    both = torch.cat([activations(T, LATENT, generator), activations(T, ROPE, generator)], 1)
    if case.get("zeros"):
        both[0, TILE : 2 * TILE] = 0.0
        both[-1, 5] = -900.0
        both[1, :LATENT] *= 2.0**-24
    both = both.to(torch.bfloat16)
    latent, rope = both[:, :LATENT], both[:, LATENT:]
    if not case.get("joined"):
        latent, rope = latent.contiguous(), rope.contiguous()
    slots = torch.randperm(size, generator=generator)[:T]
    padding = case.get("padding", 0)
    slots[T - padding :] = -1 - 5 * torch.arange(padding)
    return {"latent": latent, "rope": rope, "slots": slots, "size": size, "fp8": dtype_of(case)}


def _call(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """The cache under its three types."""
    cache = answer(**inputs)
    wanted = (inputs["size"], 656)
    if isinstance(cache, torch.Tensor) and cache.ndim == 2 and cache.shape[1] * cache.element_size() != ENTRY:
        found = cache.shape[1] * cache.element_size()
        raise ValueError(f"kv_cache_fp8 returned entries of {found} bytes; expected {ENTRY}: 512 + 16 + 128")
    if not isinstance(cache, torch.Tensor) or cache.dtype != torch.uint8 or tuple(cache.shape) != wanted:
        said = (
            f"{cache.dtype} of shape {tuple(cache.shape)}" if isinstance(cache, torch.Tensor) else type(cache).__name__
        )
        raise TypeError(f"kv_cache_fp8 returned {said}; expected bytes, torch.uint8 of shape {wanted}")
    codes, scales, rope = cache[:, :512], cache[:, 512:528], cache[:, 528:]
    return {"codes": codes.view(inputs["fp8"]), "scales": scales.view(torch.float32), "rope": rope.view(torch.bfloat16)}


def kv_cache_fp8_reference(latent: Tensor, rope: Tensor, slots: Tensor, size: int, fp8: torch.dtype) -> dict[str, Any]:
    """What `_call` makes of a right answer."""
    there = slots >= 0
    codes, scales = quantized(latent[there], 1, TILE, fp8)
    cache = torch.zeros((size, ENTRY), dtype=torch.uint8)
    parts = (codes.view(torch.uint8), scales.view(torch.uint8), rope[there].contiguous().view(torch.uint8))
    cache[slots[there]] = torch.cat(parts, 1)
    return {
        "codes": cache[:, :_AT_SCALES].contiguous().view(fp8),
        "scales": cache[:, _AT_SCALES:_AT_ROPE].contiguous().view(torch.float32),
        "rope": cache[:, _AT_ROPE:].contiguous().view(torch.bfloat16),
    }


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """Places first, which need no tolerance: entries of nobody, then the rope; then scales and codes, by token."""
    expected, slots = kv_cache_fp8_reference(**inputs), inputs["slots"]
    of_nobody = torch.ones(inputs["size"], dtype=torch.bool)
    of_nobody[slots[slots >= 0]] = False
    for name, part in value.items():
        written = part.contiguous().view(torch.uint8).any(1) & of_nobody
        if written.any():
            entry = int(written.nonzero()[0])
            return Difference("value", f"the {name} of entry {entry} are not 0, and no token has the slot {entry}")
    if found := compare(expected["rope"], value["rope"], EXACT, torch.bfloat16, where="the rope in the cache"):
        return found
    there = slots >= 0
    stored = value["codes"][slots[there]], value["scales"][slots[there]]
    found = quantization_problem(inputs["latent"][there], 1, TILE, inputs["fp8"], stored)
    return Difference(found.kind, f"of the stored tokens, in their order: {found.detail}") if found else None


def _filled(value: int) -> Any:
    def answer(latent: Tensor, rope: Tensor, slots: Tensor, size: int, fp8: torch.dtype) -> Tensor:
        return torch.full((size, 656), value, dtype=torch.uint8, device=latent.device)

    return answer


def _nan(latent: Tensor, rope: Tensor, slots: Tensor, size: int, fp8: torch.dtype) -> Tensor:
    return torch.full((size, 164), math.nan, device=latent.device).view(torch.uint8)


def _latent(latent: Tensor, rope: Tensor, slots: Tensor, size: int, fp8: torch.dtype) -> Tensor:
    raw = latent.contiguous().view(torch.uint8).flatten()
    return raw.repeat(1 + size * 656 // len(raw))[: size * 656].view(size, 656)


def _fresh(rng: random.Random) -> Case:
    tokens = 2 * rng.randrange(3, 12) + 1
    size = tokens + 2 * rng.randrange(1, 6) + 1
    return Case("tokens and places nobody chose", tokens=tokens, size=size, padding=rng.randrange(3), joined=True)


EXERCISE = Exercise(
    id="08.kv_cache_fp8",
    title="A KV cache of 656 bytes a token",
    parameters=("latent", "rope", "slots", "size", "fp8"),
    kind="kernel",
    fp8=True,
    targets=("sm_89", "gfx942"),
    inputs=_inputs,
    call=_call,
    reference=kv_cache_fp8_reference,
    judge=_judge,
    tolerance=lambda case, inputs: {"codes": CODES, "scales": SCALES, "rope": EXACT},
    dtype=lambda inputs: None,
    cases=(
        Case("every entry is written: here bytes are counted", tokens=32, size=32),
        Case("places are free, and two tokens are padding, -1 and -6", tokens=9, size=17, padding=2),
        Case(
            "latent and rope are parts of one matrix, and one token is padding",
            tokens=7,
            size=8,
            joined=True,
            padding=1,
        ),
        Case("a tile of zeros, a tiny token, and an element of -900", tokens=3, size=5, zeros=True),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0), "ones": _filled(1), "nan": _nan, "latent": _latent},
    limits=(
        Limit("launches", "Launch your own kernel: kv_cache_kernel[grid](...).", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch can do all of it: codes, scales and rope of a token have the same place.",
            at_most=lambda case: 1,
        ),
        Limit(
            # not bytes: all lanes of all programs of a token load its slot, and from one sector
            "global_load_sectors",
            "Each number of latent and rope is to be loaded once: a program needs its own token's alone, and only the "
            "part that it stores.",
            # lanes that hold 32 bytes in a row touch their sector twice; a sector of the slot for each wave
            at_most=lambda case: case["tokens"] * (2 * 2 * (LATENT + ROPE) / 32 + 40),
        ),
        Limit(
            "global_store_bytes",
            "656 bytes are to be stored for a token, each once.",
            at_most=lambda case: case["tokens"] * (1.05 * 656 + 256),
        ),
        Limit("scratch_bytes", "Registers spill to memory: a token to each program is enough.", at_most=lambda case: 0),
    ),
    torch_may=(),
    seconds=30.0,
    misconceptions=(
        Misconception(
            "rope_before_the_scales",
            slips.answer(scales_at=(ENTRY - 16) // 4, rope_at=LATENT // 2),
            "Scales and rope have changed places. Behind the 512 codes come the 4 scales, then the rope.",
        ),
        Misconception(
            "scales_first",
            slips.answer(scales_at=0),
            "The scales stand at the beginning of an entry, over the first codes. They stand behind the 512 codes.",
        ),
        Misconception(
            "token_is_the_slot",
            slips.answer("token is the slot"),
            "Token t is stored in entry t. Its place is slots[t].",
        ),
        Misconception(
            "padding_is_stored",
            slips.answer("stores padding"),
            "A token with slot -1 is stored all the same, in front of the cache. Negative slots are padding: store "
            "nothing.",
        ),
        Misconception(
            "padding_is_minus_one",
            slips.answer("padding is -1"),
            "Only a slot of -1 is left out. Any negative slot is padding: slot >= 0.",
        ),
        Misconception(
            "entries_not_cleared",
            slips.answer(empty=True),
            "Entries that no token has are to be 0; torch.empty leaves what was there. torch.zeros clears them.",
        ),
        Misconception(
            "one_scale_for_a_token",
            slips.answer("one scale"),
            "All four scales of a token are the same: its largest size. Each 128 of the 512 have a scale of their own.",
        ),
        Misconception(
            "largest_of_another_format",
            slips.answer(largest=448.0),
            "Right on NVIDIA, wrong on gfx942: 448 is the largest number of e4m3fn. torch.finfo(fp8).max knows that of "
            "e4m3fnuz.",
        ),
        Misconception(
            "largest_not_largest_size",
            slips.answer("largest, not largest size"),
            "The scale comes from the largest element; a negative one can be larger in size. Take tl.abs first.",
        ),
        Misconception(
            "inverse_of_the_scale",
            slips.answer("inverse"),
            "The scales stored are largest / amax. Asked for is the factor that leads back: code times scale is "
            "latent.",
        ),
        Misconception(
            "scale_is_amax",
            slips.answer("amax"),
            "The scale is the largest size itself, so codes reach from -1 to 1. Let amax become the format's largest "
            "number.",
        ),
        Misconception(
            "scale_in_bfloat16",
            slips.answer("in bfloat16"),
            "The scale was computed in bfloat16 and has 8 bits. Make latent float32 first.",
        ),
        Misconception(
            "zero_divided_by_zero",
            slips.answer("no zero"),
            "NaN in a tile whose elements are all 0 (a clamp may have made the largest number of it): its amax is 0, "
            "and 0 / 0 is NaN. Give such a tile a scale of 1.",
        ),
        Misconception(
            "a_smallest_amax",
            slips.answer("a smallest amax"),
            "An amax below 1e-4 was made 1e-4, or something was added to it. Some tokens are as small: their "
            "codes then use none but the lowest steps of the format. Only an amax of 0 needs a scale of its own.",
        ),
        Misconception(
            "stored_undivided",
            slips.answer("stored undivided"),
            "The scales are right, and latent was stored without being divided by them.",
        ),
        Misconception(
            "rope_in_fp8",
            slips.answer("rope rounded"),
            "The rope was rounded to FP8 on its way. It stays bfloat16, bit for bit: 64 numbers, 128 bytes.",
        ),
        Misconception(
            "rope_in_float16",
            slips.answer("rope in float16"),
            "The bits of the rope are those of float16. It was bfloat16 and stays so: no cast.",
        ),
        Misconception(
            "as_if_contiguous",
            slips.answer(contiguous=True),
            "It fails where latent and rope are parts of one matrix: rows are latent.stride(0) and rope.stride(0) "
            "apart.",
        ),
        Misconception(
            "entries_of_sixteen_bits",
            slips.sixteen_bits,
            "The entries are 1,152 bytes long, 576 numbers of 16 bits. With codes they are 512 + 16 + 128 = 656.",
        ),
        Misconception(
            "torch_places",
            slips.torch_places,
            "torch brings packed tokens to their places: every byte is moved once more. A program can load its slot "
            "and store there.",
        ),
    ),
    hints=(
        "Draw an entry: at which byte does each of the three parts begin? Now in units of what is stored there: 4 "
        "bytes for a scale, 2 for a number of the rope.",
        "The same memory under three types: cache.view(fp8), cache.view(torch.float32), cache.view(torch.bfloat16) "
        "are views, and a kernel takes all three. An entry is 656, 164 and 328 elements long. A program for each "
        "token loads its slot and stores nothing when that is negative.",
        "codes_ptr + slot * 656 + i for i below 512; scales_ptr + slot * 164 + 128 + tile; rope_ptr + slot * 328 + "
        "264 + d. The four tiles are a block of 4 x 128: amax = tl.max(tl.abs(x), 1), and the rest is "
        "08.quantize_tile. if slot >= 0: around all stores, or masks.",
    ),
    explanation=(
        "An entry of the latent cache has two parts of different nature. The 512 latent numbers are many and smooth: "
        "they take a byte each, with a scale for each 128. The 64 numbers that carry the position are turned by "
        "angles that grow with it, and their error goes straight into the scores: they keep 16 bits. 512 + 16 + 128 "
        "bytes are 57% of the 1,152 before. One array of bytes holds all three types, so that a page can be moved, "
        "shared and sent without knowing what is in it."
    ),
)
