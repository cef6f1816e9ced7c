"""03.fp8_weights: FP8 weights of a checkpoint, in the FP8 that a target computes in."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.chips import TARGETS
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

FN, FNUZ, BF16 = torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.bfloat16
_FLAVOURS = {"ocp": FN, "fnuz": FNUZ, "none": BF16}
_NEIGHBOURS = dict.fromkeys(("sm_120", "gfx1200"), FN) | dict.fromkeys(
    ("sm_75", "sm_86", "gfx908", "gfx1030", "gfx1101"), BF16
)
DTYPES: dict[str, torch.dtype] = {name: _FLAVOURS[row.fp8] for name, row in TARGETS.items()} | _NEIGHBOURS
"""Target -> dtype of its weights: the table of targets and, beside it, some neighbours."""

Loaded = tuple[Tensor, Tensor]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    """Any bytes at all, those that the formats read differently among them; powers of two and other scales."""
    rows, cols = case["rows"], case["cols"]
    codes = torch.randint(256, (rows * cols,), generator=generator, dtype=torch.uint8)
    if case.get("nan", True):
        special = [0x80, 0x7F, 0xFF, 0x7E, 0xFE, 0x01, 0x78]
    else:
        codes[(codes & 0x7F) == 0x7F] = 0x38
        special = [0x80, 0x00, 0x38, 0x7E, 0xFE, 0x01, 0x78]
    places = torch.randperm(rows * cols, generator=generator)[: len(special)]
    codes[places] = torch.tensor(special, dtype=torch.uint8)
    scale = torch.rand(rows, 1, generator=generator) / 64 + 2**-9
    return {"codes": codes.view(rows, cols), "scale": scale, "target": case["target"]}


def fp8_weights_reference(codes: Tensor, scale: Tensor, target: str) -> dict[str, Any]:
    """What `_call` makes of a right answer: the dtype of the target, and the numbers of the checkpoint."""
    return {"dtype": str(DTYPES[target]).removeprefix("torch."), "weights * scale": codes.view(FN).float() * scale}


def _call(answer: Callable[..., Loaded], inputs: Inputs) -> dict[str, Any]:
    """The dtype of the weights, and the numbers that they stand for."""
    found = answer(**inputs)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise TypeError(f"fp8_weights returned {_said(found)}; expected a pair: (weights, scale)")
    weights, scale = found
    if not isinstance(weights, Tensor):
        raise TypeError(f"the first of the pair is {_said(weights)}; expected a tensor of weights")
    if weights.shape != inputs["codes"].shape:
        raise TypeError(
            f"weights have shape {tuple(weights.shape)}; expected that of codes: {tuple(inputs['codes'].shape)}"
        )
    scale = torch.as_tensor(scale)
    if not scale.is_floating_point() or scale.shape != inputs["scale"].shape:
        raise TypeError(
            f"the scale has dtype {scale.dtype} and shape {tuple(scale.shape)}; expected float32 and "
            f"{tuple(inputs['scale'].shape)}, one for each row"
        )
    return {"dtype": str(weights.dtype).removeprefix("torch."), "weights * scale": weights.float() * scale}


def _said(value: Any) -> str:
    return f"a {type(value).__name__}"


def _to_fnuz(codes: Tensor, scale: Tensor, zero: bool = True, nans: tuple[int, ...] = (0x7F, 0xFF)) -> Loaded:
    """The bytes, but for FN's negative zero and its NaNs; a misconception forgets some of these."""
    kept = codes.clone()
    if zero:
        kept[codes == 0x80] = 0
    kept[torch.isin(codes, torch.tensor(nans, dtype=torch.uint8))] = 0x80
    return kept.view(FNUZ), scale * 2


def _loaded(dtype: torch.dtype, codes: Tensor, scale: Tensor) -> Loaded:
    if dtype == FNUZ:
        return _to_fnuz(codes, scale)
    return (codes.view(FN), scale) if dtype == FN else (codes.view(FN).to(BF16), scale)


def _deciding(dtype_of: Callable[[str], torch.dtype]) -> Callable[..., Loaded]:
    """Loads as it should, into the dtype that a wrong rule names."""
    return lambda codes, scale, target: _loaded(dtype_of(target), codes, scale)


def _where(dtype: torch.dtype, load: Callable[[Tensor, Tensor], Loaded]) -> Callable[..., Loaded]:
    """Wrong only on targets whose weights have this dtype."""

    def fp8_weights(codes: Tensor, scale: Tensor, target: str) -> Loaded:
        return load(codes, scale) if DTYPES[target] == dtype else _loaded(DTYPES[target], codes, scale)

    return fp8_weights


_on_fnuz, _without_fp8 = partial(_where, FNUZ), partial(_where, BF16)


def _zero_last(codes: Tensor, scale: Tensor) -> Loaded:
    kept = _to_fnuz(codes, scale, zero=False)[0].view(torch.uint8)
    return torch.where(kept == 0x80, 0, kept).to(torch.uint8).view(FNUZ), scale * 2


def _as_text(target: str) -> torch.dtype:
    return (FN if target >= "sm_89" else BF16) if target.startswith("sm_") else DTYPES[target]


def _gfx_as_number(target: str) -> torch.dtype:
    return FN if target.startswith("gfx") and int(target[3:], 16) >= 0x950 else DTYPES[target]


def _all_but(without: str, *listed: str) -> Callable[[str], torch.dtype]:
    return lambda target: FN if target.startswith(without) and target not in listed else DTYPES[target]


def _fresh(rng: random.Random) -> Case:
    shape = {"rows": rng.randint(2, 9), "cols": rng.randint(5, 40)}
    return Case("a target nobody chose", target=rng.choice(list(DTYPES)), **shape)


def _filled(number: float) -> Callable[..., Loaded]:
    return lambda codes, scale, target: (torch.full(codes.shape, number).to(DTYPES[target]), scale)


EXERCISE = Exercise(
    id="03.fp8_weights",
    title="An FP8 checkpoint of an H100, loaded on any target",
    parameters=("codes", "scale", "target"),
    kind="host",
    inputs=_inputs,
    reference=fp8_weights_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    call=_call,
    cases=(
        Example(
            "the example of the docstring",
            codes=lambda: torch.tensor([[0x38, 0x80]], dtype=torch.uint8),
            scale=lambda: torch.tensor([[0.5]]),
            target="gfx942",
        ),
        Case("MI300X: FNUZ", target="gfx942", rows=16, cols=16),
        Case("MI300X, weights of a model: no NaN among them", target="gfx942", rows=3, cols=50, nan=False),
        Case("H100: the format of the checkpoint", target="sm_90", rows=4, cols=9),
        Case("MI355X: the next AMD generation uses the OCP format", target="gfx950", rows=4, cols=9),
        Case("RX 9070 XT: so does RDNA 4", target="gfx1201", rows=4, cols=9),
        Case("RX 9060 XT: RDNA 4 as well, under a lower number", target="gfx1200", rows=4, cols=9),
        Case("RX 7900 XTX: no FP8, although 1100 is more than 950", target="gfx1100", rows=4, cols=9),
        Case("RX 6800: no FP8 in RDNA 2", target="gfx1030", rows=4, cols=9),
        Case("MI250X: no FP8", target="gfx90a", rows=4, cols=9),
        Case("MI100: no FP8", target="gfx908", rows=4, cols=9),
        Case("A100: no FP8", target="sm_80", rows=4, cols=9),
        Case("A10, RTX 3090: no FP8 either, three numbers before the first", target="sm_86", rows=4, cols=9),
        Case("T4: no FP8", target="sm_75", rows=4, cols=9),
        Case("L4, RTX 4090: the first with FP8", target="sm_89", rows=4, cols=9),
        Case("B200: as text, sm_100 comes before sm_89", target="sm_100", rows=4, cols=9),
        Case("RTX 5090: a later target than those of the course", target="sm_120", rows=4, cols=9),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(float("nan")),
        "the input": lambda codes, scale, target: (codes, scale),
        "always e4m3fn": _deciding(lambda target: FN),
        "always e4m3fnuz": _deciding(lambda target: FNUZ),
    },
    misconceptions=(
        Misconception(
            "reads_the_bytes_as_fnuz",
            _on_fnuz(lambda codes, scale: (codes.view(FNUZ), scale)),
            "These are the bytes of the checkpoint under another name: FNUZ reads almost every one as half the number, "
            "and its scale must make up for that.",
        ),
        Misconception(
            "halves_the_scale",
            _on_fnuz(lambda codes, scale: (_to_fnuz(codes, scale)[0], scale / 2)),
            "The same byte is half the number in FNUZ, and weights times scale must be what they were: the scale goes "
            "the other way.",
        ),
        Misconception(
            "scale_as_it_is",
            _on_fnuz(lambda codes, scale: (_to_fnuz(codes, scale)[0], scale)),
            "The bytes are right, and every weight is half of what it was: FNUZ counts the exponent of the same byte "
            "from one further on. What must the scale do about that?",
        ),
        Misconception(
            "negative_zero_stays",
            _on_fnuz(partial(_to_fnuz, zero=False)),
            "0x80 is FN's negative zero and FNUZ's NaN. A single one makes a whole row of the output NaN.",
        ),
        Misconception(
            "bytes_as_they_are",
            _on_fnuz(lambda codes, scale: (codes.view(FNUZ), scale * 2)),
            "The scale is right. Not every byte is exactly half in FNUZ: which codes did the table of the lesson list?",
        ),
        Misconception(
            "nan_becomes_a_number",
            _on_fnuz(partial(_to_fnuz, nans=())),
            "0x7f and 0xff are NaN in FN and ordinary numbers in FNUZ. A broken weight must stay one that shows.",
        ),
        Misconception(
            "one_nan_of_two",
            _on_fnuz(partial(_to_fnuz, nans=(0x7F,))),
            "FN has two NaNs, one with each sign; only one of them was translated.",
        ),
        Misconception(
            "the_new_nan_is_overwritten",
            _on_fnuz(_zero_last),
            "The order matters: what has just become 0x80, FNUZ's NaN, is taken for FN's negative zero and becomes 0. "
            "Look at the bytes of the checkpoint in both tests.",
        ),
        Misconception(
            "casts_the_numbers",
            _on_fnuz(lambda codes, scale: (codes.view(FN).float().to(FNUZ), scale)),
            "FNUZ ends at 240, and FN has numbers up to 448: those become NaN. Which scale makes room for all of them "
            "and loses none of the smallest?",
        ),
        Misconception(
            "clamps_the_numbers",
            _on_fnuz(lambda codes, scale: (codes.view(FN).float().clamp(-240, 240).to(FNUZ), scale)),
            "Clamped to 240, the largest weights are other weights. Which scale makes room for all of them and loses "
            "none of the smallest?",
        ),
        Misconception(
            "scales_to_the_largest",
            _on_fnuz(lambda codes, scale: ((codes.view(FN).float() * 240 / 448).to(FNUZ), scale * 448 / 240)),
            "Everything fits, and nearly every weight was rounded: 240 / 448 is no power of two. By which factor can a "
            "number with 3 bits of mantissa be scaled without a loss?",
        ),
        Misconception(
            "divides_too_much",
            _on_fnuz(lambda codes, scale: ((codes.view(FN).float() / 4).to(FNUZ), scale * 4)),
            "The smallest numbers are lost: FNUZ has one more power of two than FN below, and this takes two.",
        ),
        Misconception(
            "scale_twice",
            _without_fp8(lambda codes, scale: ((codes.view(FN).float() * scale).to(BF16), scale)),
            "The scale is in these weights, and is returned with them: who multiplies the two has it twice. (And a "
            "weight times its scale is no bfloat16.)",
        ),
        Misconception(
            "scale_in_bfloat16",
            _without_fp8(lambda codes, scale: ((codes.view(FN).float() * scale).to(BF16), torch.ones_like(scale))),
            "An FN number fits into bfloat16 exactly, a weight times its scale does not: it was rounded. Leave the "
            "scale beside it.",
        ),
        Misconception(
            "codes_for_numbers",
            _without_fp8(lambda codes, scale: (codes.to(BF16), scale)),
            "These are the codes, 0 to 255, as numbers. What number a code stands for, its dtype says: view before you "
            "convert.",
        ),
        Misconception(
            "amd_is_fnuz",
            _deciding(lambda target: FNUZ if target.startswith("gfx") and DTYPES[target] == FN else DTYPES[target]),
            "FNUZ is the format of one AMD generation. Which later ones use the same format as NVIDIA?",
        ),
        Misconception(
            "one_format",
            _deciding(lambda target: FN if DTYPES[target] == FNUZ else DTYPES[target]),
            "MI300X does not compute in FN: torch raises an error, or Triton falls back to float16 without one.",
        ),
        Misconception(
            "no_fp8_no_weights",
            _deciding(lambda target: FN if DTYPES[target] == BF16 else DTYPES[target]),
            "Where a target has no FP8 it can store these bytes but not multiply them. Give it numbers that it "
            "computes in.",
        ),
        Misconception(
            "compares_gfx_numbers",
            _deciding(_gfx_as_number),
            "The numbers of gfx targets do not grow with their abilities: gfx1100 is more than gfx950 and has no FP8. "
            "CDNA (gfx9) and RDNA (gfx10 to gfx12) are two families.",
        ),
        Misconception(
            "every_amd_has_fp8",
            _deciding(lambda target: FN if target.startswith("gfx") and target != "gfx942" else DTYPES[target]),
            "Not every AMD target has FP8 matrix instructions: look at gfx90a and gfx1100 again.",
        ),
        Misconception(
            "all_rdna_but_3",
            _deciding(_all_but("gfx1", "gfx1100", "gfx1101")),
            "RDNA 2 (gfx1030) has no FP8 either. Of the RDNA targets only those that start with gfx12 have it.",
        ),
        Misconception(
            "all_cdna_but_2",
            _deciding(_all_but("gfx9", "gfx90a", "gfx942")),
            "gfx908 (MI100) is older than gfx90a and has no FP8. Name the targets that have it, not those without.",
        ),
        Misconception(
            "one_rdna_4",
            _deciding(lambda target: BF16 if target == "gfx1200" else DTYPES[target]),
            "RDNA 4 is a family, not one chip: every target that starts with gfx12 has the OCP format.",
        ),
        Misconception(
            "compares_text",
            _deciding(_as_text),
            'As text, "sm_100" is less than "sm_89": compare the numbers behind the prefix.',
        ),
        Misconception(
            "from_ampere_on",
            _deciding(lambda target: FN if target in ("sm_80", "sm_86") else DTYPES[target]),
            "Ampere (sm_80, sm_86) has no FP8. Which compute capability was the first?",
        ),
        Misconception(
            "all_of_nvidia",
            _deciding(lambda target: FN if target.startswith("sm_") else DTYPES[target]),
            "NVIDIA has FP8 since one generation, not always. Which compute capability was the first?",
        ),
        Misconception(
            "listed_targets",
            _deciding(lambda target: BF16 if target == "sm_120" else DTYPES[target]),
            "sm_120 (RTX 5090) has FP8 too. NVIDIA's targets from sm_89 on have it, those that come after your list as "
            "well: compare the number behind the prefix.",
        ),
    ),
    hints=(
        "Three groups of targets, three results. codes.view(torch.float8_e4m3fn) reads bytes as numbers and moves "
        "nothing. The lesson's table lists the codes that are not half the number in FNUZ.",
        "No FP8: those numbers as bfloat16, with the scale as it is. gfx942: the bytes stay, except 0x80, 0x7f and "
        "0xff; the scale doubles. Test the codes that came, not those that you have made.",
        "On gfx942: kept = codes.clone(); kept[codes == 0x80] = 0; kept[(codes & 0x7f) == 0x7f] = 0x80; return "
        "kept.view(torch.float8_e4m3fnuz), scale * 2.",
    ),
    explanation=(
        "Both formats have 4 bits of exponent and 3 of mantissa, and FNUZ counts its exponents from one further on, so "
        "a byte is half the number: keep the byte, double the scale. It has one zero and one NaN, and the NaN is the "
        "code of FN's negative zero, of which weights are full. No other factor works: without one, FN's numbers from "
        "256 on do not fit; with four, its smallest are lost. Where there is no FP8, bfloat16 holds every FN number "
        "exactly."
    ),
)
