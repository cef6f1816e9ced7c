"""The verdict on a Result: exact, or within the tolerance that its K and types allow."""

from __future__ import annotations

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.kernelset.case import Result


def complaint(result: Result) -> str | None:
    """One sentence on the first wrong element; None when the output is right.

    >>> import torch
    >>> complaint(Result("sum", torch.tensor([1, 2]), torch.tensor([1, 3])))
    'sum: 1 of 2 elements are wrong, the first at [1]: got 2, expected 3 (exact)'
    """
    got, expected = result.got, result.expected
    if got.shape != expected.shape:
        return f"{result.name}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    if result.k == 0:
        how = "exact"
        same = got == expected
        if got.is_floating_point():
            same |= got.isnan() & expected.isnan()
    else:
        allowed = tolerance(got.dtype, result.k, result.magnitude, result.accumulator, result.roundings)
        how = f"{allowed.why}: rtol {allowed.rtol:.2g}, atol {allowed.atol:.2g}"
        got = got.double()
        same = (got - expected).abs() <= allowed.atol + allowed.rtol * expected.abs()
        same |= (got == expected) | (got.isnan() & expected.isnan())
    if bool(same.all()):
        return None
    where = tuple((~same).nonzero()[0].tolist())
    return (
        f"{result.name}: {int((~same).sum())} of {same.numel()} elements are wrong, the first at {list(where)}: "
        f"got {got[where].item()}, expected {expected[where].item()} ({how})"
    )
