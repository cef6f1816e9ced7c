"""04.layernorm_backward: wrong answers that somebody would write, as one kernel and one launcher with switches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16
"""Rows that one program takes."""

Gradients = tuple[Tensor, Tensor, Tensor]

_MODES = {name: tl.constexpr(number) for number, name in enumerate(("parts", "atomics", "memory", "dx"))}
_SLIPS = ("", "narrow", "weight in each row", "no rstd", "keeps the last", "weighted")
_NUMBERS = {name: tl.constexpr(number) for number, name in enumerate(_SLIPS)}

_PARTS = _MODES["parts"]
_ATOMICS = _MODES["atomics"]
_MEMORY = _MODES["memory"]
_WEIGHT_IN_EACH_ROW = _NUMBERS["weight in each row"]
_NO_RSTD = _NUMBERS["no rstd"]
_KEEPS_THE_LAST = _NUMBERS["keeps the last"]
_WEIGHTED = _NUMBERS["weighted"]


# nearly all slips share one compilation
@triton.jit(do_not_specialize=["n_rows", "row_step", "rows_each", "statistics_step", "mode", "slip"])
def _kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dw_ptr,
    db_ptr,
    n_rows,
    stride_dy,
    stride_x,
    row_step,
    rows_each,
    statistics_step,
    n_cols,
    divisor,
    use_weight,
    use_c1,
    use_c2,
    use_rstd,
    dw_of_xhat,
    dw_of_x,
    dw_of_one,
    mode,
    slip,
    NO_DX: tl.constexpr,
    NARROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """mode: where dw and db go, "parts", "atomics" or "memory"; nowhere, if it is "dx".

    NARROW: dw and db are summed in the type of x.
    """
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=mask & (slip != _WEIGHT_IN_EACH_ROW), other=0.0).to(tl.float32)
    weight = weight * use_weight + (1 - use_weight)
    if NARROW:
        dw, db = tl.zeros([BLOCK], x_ptr.dtype.element_ty), tl.zeros([BLOCK], x_ptr.dtype.element_ty)
    else:
        dw, db = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    first = tl.program_id(0) * row_step
    for row in range(first, tl.minimum(first + rows_each, n_rows)):
        x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
        if slip == _WEIGHT_IN_EACH_ROW:
            weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        mean, rstd = tl.load(mean_ptr + row * statistics_step), tl.load(rstd_ptr + row * statistics_step)
        xhat = (x - mean) * tl.where(slip == _NO_RSTD, 1.0, rstd)
        if not NO_DX:
            wdy = dy * weight
            c1, c2 = tl.sum(xhat * wdy, axis=0) / divisor * use_c1, tl.sum(wdy, axis=0) / divisor * use_c2
            dx = (wdy - xhat * c1 - c2) * (rstd * use_rstd + (1 - use_rstd))
            tl.store(dx_ptr + row * n_cols + cols, dx, mask=mask)
            if slip == _WEIGHTED:
                xhat *= weight
        if dw_of_xhat == 0.0:
            xhat = x * dw_of_x + dw_of_one
        if slip == _KEEPS_THE_LAST:
            dw, db = tl.zeros_like(dw), tl.zeros_like(db)
        dw += (dy * xhat).to(dw.dtype)
        db += dy.to(db.dtype)
    if mode == _ATOMICS:
        tl.atomic_add(dw_ptr + cols, dw, mask=mask)
        tl.atomic_add(db_ptr + cols, db, mask=mask)
    if mode == _MEMORY:
        tl.store(dw_ptr + cols, tl.load(dw_ptr + cols, mask=mask) + dw, mask=mask)
        tl.store(db_ptr + cols, tl.load(db_ptr + cols, mask=mask) + db, mask=mask)
    if mode == _PARTS:
        at = tl.program_id(0) * n_cols + cols
        tl.store(dw_ptr + at, dw, mask=mask)
        tl.store(db_ptr + at, db, mask=mask)


@triton.jit(do_not_specialize=["parts", "parts_each", "n_cols"])
def _add_kernel(parts_ptr, out_ptr, parts, parts_each, n_cols, BLOCK: tl.constexpr):
    parts_ptr += tl.program_id(1) * parts_each * n_cols
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(parts):
        total += tl.load(parts_ptr + part * n_cols + cols, mask=mask, other=0.0)
    tl.store(out_ptr + tl.program_id(1) * n_cols + cols, total, mask=mask)


def answer(
    mode: str = "parts",
    slip: str = "",
    *,
    rows_each: int = ROWS,
    second: str = "",
    new: Callable[..., Tensor] = torch.zeros,
    programs: Callable[[int, int], int] = triton.cdiv,
    keep: Callable[[Tensor], torch.dtype] = lambda x: torch.float32,
    dtype: Callable[[Tensor], torch.dtype] = lambda x: x.dtype,
    order: Callable[..., Any] = lambda dx, dw, db: (dx, dw, db),
    **changes: Callable[[Tensor, Tensor], float],
) -> Callable[..., Any]:
    """The right answer, but for what is given.

    slip, second: of the kernel, and of the second pass. changes: other arguments of the kernel, by name, of x and dy.
    """

    def layernorm_backward(dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor) -> Any:
        n_rows, n_cols = x.shape
        block = triton.next_power_of_2(n_cols)
        at: dict[str, float] = {"n_rows": n_rows, "stride_dy": dy.stride(0), "stride_x": x.stride(0)}
        at |= {"row_step": rows_each, "rows_each": rows_each, "statistics_step": 1, "n_cols": n_cols}
        at |= {"divisor": float(n_cols), "use_weight": 1.0, "use_c1": 1.0, "use_c2": 1.0, "use_rstd": 1.0}
        at |= {"dw_of_xhat": 1.0, "dw_of_x": 0.0, "dw_of_one": 0.0}
        at |= {name: change(x, dy) for name, change in changes.items()}
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        programs_of = max(1, programs(n_rows, rows_each))
        shape = (programs_of, n_cols) if mode in ("parts", "apart") else (n_cols,)
        make = torch.empty if mode in ("parts", "apart") else new
        both = make((2, *shape), dtype=keep(x), device=x.device)
        dw, db = both
        narrow = slip == "narrow" and x.dtype != torch.float32  # float32 is not narrow
        for part in ("dx", "parts") if mode == "apart" else (mode,):
            at |= {"mode": _MODES[part].value, "slip": _NUMBERS[slip].value}
            options = {"NO_DX": mode == "apart" and part == "parts", "NARROW": narrow, "BLOCK": block}
            _kernel[(programs_of,)](dy, x, weight, mean, rstd, dx, dw, db, **at, **options)
        if mode not in ("parts", "apart"):
            return order(dx, dw.to(dtype(x)), db.to(dtype(x)))
        if second == "torch":
            return dx, dw.sum(0).to(x.dtype), db.sum(0).to(x.dtype)
        if second == "none":
            return dx, dw[0].to(x.dtype), db[0].to(x.dtype)
        sums = torch.empty(2, n_cols, dtype=dtype(x), device=x.device)
        count = min(programs_of, 4) if second == "four" else programs_of
        _add_kernel[(triton.cdiv(n_cols, 256), 2)](both, sums, count, programs_of, n_cols, BLOCK=256)
        return order(dx, *sums)

    return layernorm_backward


def with_torch(dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor) -> Gradients:
    dy32, xhat = dy.float(), (x.float() - mean[:, None]) * rstd[:, None]
    wdy = dy32 * weight
    dx = (wdy - xhat * (wdy * xhat).mean(1, keepdim=True) - wdy.mean(1, keepdim=True)) * rstd[:, None]
    return dx.to(x.dtype), (dy32 * xhat).sum(0).to(x.dtype), dy32.sum(0).to(x.dtype)
