"""03.fp8_dtype: which FP8 a target computes in, and its largest number."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.chips import TARGETS
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

FN, FNUZ = torch.float8_e4m3fn, torch.float8_e4m3fnuz
_BY_NAME = {"float8_e4m3fn": FN, "float8_e4m3fnuz": FNUZ}
_FLAVOURS = {"ocp": "float8_e4m3fn", "fnuz": "float8_e4m3fnuz", "none": None}
_NEIGHBOURS = dict.fromkeys(("sm_120", "gfx1200"), "float8_e4m3fn") | dict.fromkeys(
    ("sm_75", "sm_86", "gfx908", "gfx1030", "gfx1101")
)
_FP8 = {name: _FLAVOURS[row.fp8] for name, row in TARGETS.items()} | _NEIGHBOURS
"""Target -> its FP8 with 4 bits of exponent, or None: the table of targets and, beside it, some neighbours."""

Choice = tuple[torch.dtype | None, float | None]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    # far beyond either maximum, so that a wrong one shows; a few numbers that the two formats round apart
    x = torch.randn(24, generator=generator) * 200
    return {"target": case["target"], "x": torch.cat([x, torch.tensor([500.0, -500.0, 248.0, -248.0, 1.0, 0.0])])}


def _cast(x: Tensor, dtype: Any, largest: Any) -> list[int]:
    """Clamped to the largest number, rounded to the format: the bytes in memory."""
    return x.clamp(-largest, largest).to(dtype).view(torch.uint8).tolist()


def fp8_dtype_reference(target: str, x: Tensor) -> dict[str, Any]:
    """What `_call` makes of a right answer."""
    name = _FP8[target]
    if name is None:
        return {"dtype": "None", "largest": None, "bytes of x": []}
    dtype = _BY_NAME[name]
    largest = torch.finfo(dtype).max
    return {"dtype": name, "largest": largest, "bytes of x": _cast(x, dtype, largest)}


def _call(answer: Callable[[str], Choice], inputs: Inputs) -> dict[str, Any]:
    """The answer, and the bytes of a tensor that is clamped and cast as it says."""
    found = answer(inputs["target"])
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise TypeError(f"fp8_dtype returned {found!r}; expected a pair: (dtype or None, largest number or None)")
    dtype, largest = found
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"the first of the pair is {dtype!r}; expected a torch dtype or None")
    largest = largest.item() if isinstance(largest, (Tensor, np.number)) else largest
    if largest is not None and not isinstance(largest, (int, float)):
        raise TypeError(f"the second of the pair is {largest!r}; expected a number such as 448.0, or None")
    usable = dtype in _BY_NAME.values() and largest is not None and largest > 0
    bytes_of_x = _cast(inputs["x"], dtype, largest) if usable else []
    return {"dtype": str(dtype).removeprefix("torch."), "largest": largest, "bytes of x": bytes_of_x}


def _pair(dtype: torch.dtype | None) -> Choice:
    return (None, None) if dtype is None else (dtype, torch.finfo(dtype).max)


def _right(target: str) -> Choice:
    name = _FP8[target]
    return _pair(None if name is None else _BY_NAME[name])


def _always_448(target: str) -> Choice:
    dtype, _ = _right(target)
    return dtype, None if dtype is None else 448.0


def _amd_is_fnuz(target: str) -> Choice:
    return _pair(FNUZ) if target.startswith("gfx") and _FP8[target] else _right(target)


def _every_amd_has_fp8(target: str) -> Choice:
    return _pair(FN) if target.startswith("gfx") and target != "gfx942" else _right(target)


def _one_format(target: str) -> Choice:
    return _pair(FN if _FP8[target] else None)


def _compares_text(target: str) -> Choice:
    return _pair(FN if target >= "sm_89" else None) if target.startswith("sm_") else _right(target)


def _compares_gfx_numbers(target: str) -> Choice:
    return _pair(FN) if target.startswith("gfx") and int(target[3:], 16) >= 0x950 else _right(target)


def _listed(target: str) -> Choice:
    return (None, None) if target == "sm_120" else _right(target)


def _all_but(without: str, *listed: str) -> Callable[[str], Choice]:
    return lambda target: _pair(FN) if target.startswith(without) and target not in listed else _right(target)


def _from_ampere_on(target: str) -> Choice:
    return _pair(FN) if target.startswith("sm_") else _right(target)


def _one_rdna_4(target: str) -> Choice:
    return (None, None) if target == "gfx1200" else _right(target)


def _of_torch(target: str) -> Choice:
    return _pair(FN if hasattr(torch, "float8_e4m3fn") else None)


def _fresh(rng: random.Random) -> Case:
    return Case("a target nobody chose", target=rng.choice(list(_FP8)))


EXERCISE = Exercise(
    id="03.fp8_dtype",
    title="Which FP8, and how large is its largest number?",
    parameters=("target",),
    kind="host",
    inputs=_inputs,
    reference=fp8_dtype_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    call=_call,
    cases=(
        Case("H100: the format of the OCP standard", target="sm_90"),
        Case("MI300X: FNUZ, whose largest number is smaller", target="gfx942"),
        Case("MI355X: the next AMD generation uses the OCP format", target="gfx950"),
        Case("RX 9070 XT: so does RDNA 4", target="gfx1201"),
        Case("RX 7900 XTX: no FP8, although 1100 is more than 950", target="gfx1100"),
        Case("MI250X: no FP8", target="gfx90a"),
        Case("RX 9060 XT: RDNA 4 as well, under a lower number", target="gfx1200"),
        Case("A100: no FP8", target="sm_80"),
        Case("A10, RTX 3090: no FP8 either, three numbers before the first", target="sm_86"),
        Case("L4, RTX 4090: the first with FP8", target="sm_89"),
        Case("B200: as text, sm_100 comes before sm_89", target="sm_100"),
        Case("RTX 5090: a later target than those of the course", target="sm_120"),
        Case("T4: no FP8", target="sm_75"),
        Case("MI100: no FP8", target="gfx908"),
        Case("RX 6800: no FP8 in RDNA 2", target="gfx1030"),
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda target: (None, None),
        "one": lambda target: (FN, 1.0),
        "nan": lambda target: (FN, math.nan),
        "always e4m3fn": lambda target: (FN, 448.0),
        "always e4m3fnuz": lambda target: (FNUZ, 240.0),
    },
    misconceptions=(
        Misconception(
            "listed_targets",
            _listed,
            "sm_120 (RTX 5090) has FP8 too. NVIDIA's targets from sm_89 on have it, those that come after your list as "
            "well: compare the number behind the prefix.",
        ),
        Misconception(
            "all_rdna_but_3",
            _all_but("gfx1", "gfx1100", "gfx1101"),
            "RDNA 2 (gfx1030) has no FP8 either. Of the RDNA targets only those that start with gfx12 have it.",
        ),
        Misconception(
            "all_cdna_but_2",
            _all_but("gfx9", "gfx90a", "gfx942"),
            "gfx908 (MI100) is older than gfx90a and has no FP8. Name the targets that have it, not those without.",
        ),
        Misconception(
            "always_448",
            _always_448,
            "448 is the largest number of e4m3fn. The exponent of e4m3fnuz is biased by one more, so its numbers end "
            "sooner; clamped to 448, what lies beyond becomes NaN. Ask torch.finfo.",
        ),
        Misconception(
            "amd_is_fnuz",
            _amd_is_fnuz,
            "FNUZ is the format of one AMD generation. Which later ones use the same format as NVIDIA?",
        ),
        Misconception(
            "compares_gfx_numbers",
            _compares_gfx_numbers,
            "The numbers of gfx targets do not grow with their abilities: gfx1100 is more than gfx950 and has no FP8. "
            "CDNA (gfx9) and RDNA (gfx10 to gfx12) are two families.",
        ),
        Misconception(
            "every_amd_has_fp8",
            _every_amd_has_fp8,
            "Not every AMD target has FP8 matrix instructions: look at gfx90a and gfx1100 again.",
        ),
        Misconception(
            "one_format",
            _one_format,
            "This takes one format for all. MI300X reads the same byte as another number: a dtype that the chip does "
            "not compute in raises in torch, or falls back silently to float16 in Triton.",
        ),
        Misconception(
            "compares_text",
            _compares_text,
            'As text, "sm_100" is less than "sm_89": compare the numbers behind the prefix.',
        ),
        Misconception(
            "from_ampere_on",
            _from_ampere_on,
            "Ampere (sm_80, sm_86) has no FP8. Which compute capability was the first?",
        ),
        Misconception(
            "one_rdna_4",
            _one_rdna_4,
            "RDNA 4 is a family, not one chip: every target that starts with gfx12 has the OCP format.",
        ),
        Misconception(
            "asks_torch",
            _of_torch,
            "Every torch has both dtypes, also on a machine with no GPU. What the hardware computes in depends on the "
            "target.",
        ),
    ),
    hints=(
        "Three groups: the format of the OCP standard, FNUZ, and none. The table of the lesson has each target's.",
        "FNUZ: gfx942 only. OCP: gfx950, everything that starts with gfx12, and NVIDIA from sm_89 on (as a number). "
        "The largest number of a dtype is torch.finfo(dtype).max.",
        'dtype = torch.float8_e4m3fnuz if target == "gfx942", torch.float8_e4m3fn if target is "gfx950" or starts '
        'with "gfx12" or int(target.removeprefix("sm_")) >= 89, else None. Test for "sm_" before int(...).',
    ),
    explanation=(
        "Both formats have 4 bits of exponent and 3 of mantissa. FNUZ has no negative zero and spends that code on its "
        "only NaN; its exponent bias is 8 and not 7, so the same byte is half the number: 240 at most, not 448. The "
        "check clamped a tensor with your number and cast it to your dtype. With 448 on MI300X the large values become "
        "NaN, which is what a ported quantiser does when its maximum is written as a number."
    ),
)
