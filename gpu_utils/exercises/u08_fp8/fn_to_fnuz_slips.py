"""Wrong answers of 08.fn_to_fnuz. One kernel holds all mistakes, chosen while it runs: it is compiled once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024

_SLIPS = (
    *("", "keeps the bytes", "adds everywhere", "spares zero", "subnormals stay", "subnormals lost", "halves"),
    *("no end", "beyond is nan", "ends one early", "zero keeps its sign", "nan is a number", "one nan"),
    *("new nan is zero", "no sign", "one long", "reads twice"),
)
NUMBERS = {name: tl.constexpr(number) for number, name in enumerate(_SLIPS)}
"""What a launcher gives to the kernel, by its name."""

_KEEPS = NUMBERS["keeps the bytes"]
_EVERYWHERE = NUMBERS["adds everywhere"]
_SPARES_ZERO = NUMBERS["spares zero"]
_STAY = NUMBERS["subnormals stay"]
_LOST = NUMBERS["subnormals lost"]
_HALVES = NUMBERS["halves"]
_NO_END = NUMBERS["no end"]
_BEYOND = NUMBERS["beyond is nan"]
_EARLY = NUMBERS["ends one early"]
_SIGNED_ZERO = NUMBERS["zero keeps its sign"]
_NUMBER = NUMBERS["nan is a number"]
_ONE_NAN = NUMBERS["one nan"]
_NEW_NAN = NUMBERS["new nan is zero"]
_NO_SIGN = NUMBERS["no sign"]
_ONE_LONG = NUMBERS["one long"]
_READS_TWICE = NUMBERS["reads twice"]

_RUN_TIME = ("n", "size1", "size2", "size3", "step0", "step1", "step2", "step3", "slip")


@triton.jit(do_not_specialize=_RUN_TIME, do_not_specialize_on_alignment=["codes_ptr", "out_ptr"])
def _kernel(
    codes_ptr, out_ptr, n, size1, size2, size3, step0, step1, step2, step3, slip, BLOCK: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (i < n) | ((i == n) & (slip == _ONE_LONG))
    at = i % size3 * step3 + i // size3 % size2 * step2
    at += i // (size3 * size2) % size1 * step1 + i // (size3 * size2 * size1) * step0
    code = tl.load(codes_ptr + at, mask=mask).to(tl.int32)
    if slip == _READS_TWICE:
        code = tl.maximum(code, tl.load(codes_ptr + at, mask=mask & (code < 256)).to(tl.int32))
    size = code & 0x7F
    moved = size + 8
    found = tl.where(size < 8, 2 * size, moved)
    found = tl.where(slip == _KEEPS, size, found)
    found = tl.where(slip == _EVERYWHERE, moved, found)
    found = tl.where(slip == _SPARES_ZERO, tl.where(size == 0, 0, moved), found)
    found = tl.where(slip == _STAY, tl.where(size < 8, size, moved), found)
    found = tl.where(slip == _LOST, tl.where(size < 8, 0, moved), found)
    found = tl.where(slip == _HALVES, tl.where(size < 16, size // 2, size - 8), found)
    beyond = found > 0x7F
    end = tl.where(slip == _EARLY, 0x7E, 0x7F)
    found = tl.where(slip == _NO_END, found, tl.minimum(found, end))
    signed = (size > 0) | (slip == _SIGNED_ZERO)
    found = tl.where((code >= 0x80) & signed & (slip != _NO_SIGN), found + 0x80, found)
    found = tl.where(beyond & (slip == _BEYOND), 0x80, found)
    nan = (size == 0x7F) & (slip != _NUMBER) & ((code < 0x80) | (slip != _ONE_NAN))
    found = tl.where(nan, tl.where(slip == _NEW_NAN, 0, 0x80), found)
    tl.store(out_ptr + i, found.to(tl.uint8), mask=mask)


def _four(codes: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides with axes of length 1 in front."""
    more = 4 - codes.ndim
    return (1,) * more + codes.shape, (0,) * more + codes.stride()


def _launched(codes: Tensor, slip: str, steps: Callable[[Tensor], tuple[int, ...]], programs: int) -> Tensor:
    out = torch.empty(codes.shape, dtype=torch.uint8, device=codes.device)
    shape, _ = _four(codes)
    numbers = codes.numel(), *shape[1:], *steps(codes), NUMBERS[slip].value
    _kernel[(programs,)](codes, out, *numbers, BLOCK=BLOCK)
    return out


def slipped(
    slip: str = "",
    steps: Callable[[Tensor], tuple[int, ...]] = lambda codes: _four(codes)[1],
    programs: Callable[[int], int] = lambda n: triton.cdiv(n, BLOCK),
    before: Callable[[Tensor], Tensor] = lambda codes: codes,
    after: Callable[[Tensor], Any] = lambda out: out,
) -> Callable[[Tensor], Any]:
    """The right answer with one mistake in it: in the kernel, its strides, its grid, or in what torch does."""

    def answer(codes: Tensor) -> Any:
        given = before(codes)
        return after(_launched(given, slip, steps, programs(given.numel())))

    return answer


def as_contiguous(codes: Tensor) -> tuple[int, ...]:
    """The strides that a contiguous tensor of the shape would have."""
    return _four(torch.empty(codes.shape, device="meta"))[1]


def last_axis_side_by_side(codes: Tensor) -> tuple[int, ...]:
    return (*_four(codes)[1][:3], 1)


def in_two_launches(codes: Tensor) -> Tensor:
    out = slipped()(codes)
    slipped("nan is a number")(out)  # a second pass over the bytes, which changes nothing that is returned
    return out


def in_place(codes: Tensor) -> Tensor:
    shape, steps = _four(codes)
    out = slipped()(codes)
    numbers = codes.numel(), *shape[1:], *steps, NUMBERS[""].value
    if codes.is_contiguous():
        _kernel[(triton.cdiv(codes.numel(), BLOCK),)](codes, codes, *numbers, BLOCK=BLOCK)
        return codes
    return out
