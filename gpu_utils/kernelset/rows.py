"""Kernels that reduce the rows of a matrix: softmax, norms, cross-entropy, extremes; forward and backward."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_utils.kernelset.case import Run, case


@triton.jit
def softmax_kernel(x_ptr, out_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + c, e / tl.sum(e, axis=0), mask=c < cols)


@triton.jit
def softmax_backward_kernel(y_ptr, dy_ptr, dx_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * cols + c, y * (dy - tl.sum(y * dy, axis=0)), mask=c < cols)


@case()
def softmax_forward_and_backward(run: Run) -> None:
    rows, cols = run.size(5, 200), run.size(333, 1000)
    block = triton.next_power_of_2(cols)
    for dtype, warps in ((torch.float32, 4), (torch.float16, 8)):
        x = run.normal(rows, cols + 3, dtype=dtype)[:, :cols]
        dy, y, dx = run.normal(rows, cols, dtype=dtype), *(torch.empty(rows, cols, dtype=dtype) for _ in range(2))
        run.launch(softmax_kernel, (rows,), x, y, x.stride(0), cols, BLOCK=block, num_warps=warps)
        exact = torch.softmax(x.double(), 1)
        run.close(f"softmax {dtype}", y, exact, k=4, magnitude=0.1, roundings=4)
        given = exact.to(dtype)  # the same on every device, so that what is expected is the same
        run.launch(softmax_backward_kernel, (rows,), given, dy, dx, cols, BLOCK=block, num_warps=warps)
        wide = given.double()
        expected = wide * (dy.double() - (wide * dy.double()).sum(1, keepdim=True))
        run.close(f"softmax backward {dtype}", dx, expected, k=cols, magnitude=0.01, roundings=3)


@triton.jit
def online_softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + row * cols + start + c, mask=start + c < cols, other=-float("inf"))
        higher = tl.maximum(top, x)
        total = total * tl.where(higher == -float("inf"), 1.0, tl.exp(top - higher))
        total += tl.where(x == -float("inf"), 0.0, tl.exp(x - higher))
        top = higher
    peak = tl.max(top, 0)
    scale = tl.sum(total * tl.exp(top - peak), 0)
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + row * cols + start + c, mask=start + c < cols, other=0.0)
        tl.store(out_ptr + row * cols + start + c, tl.exp(x - peak) / scale, mask=start + c < cols)


@case()
def softmax_online(run: Run) -> None:
    rows, cols = run.size(3, 100), run.size(777, 3001)
    x, out = run.normal(rows, cols), torch.empty(rows, cols)
    run.launch(online_softmax_kernel, (rows,), x, out, cols, BLOCK=256)
    run.close("softmax", out, torch.softmax(x.double(), 1), k=8, magnitude=0.1, roundings=8)


@triton.jit
def layernorm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < cols
    x = tl.load(x_ptr + row * cols + c, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / cols
    centred = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / cols + eps)
    w = tl.load(w_ptr + c, mask=mask)
    b = tl.load(b_ptr + c, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    tl.store(y_ptr + row * cols + c, (centred * rstd * w + b).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layernorm_backward_kernel(
    x_ptr,
    w_ptr,
    dy_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dw_ptr,
    db_ptr,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    c = tl.arange(0, BLOCK)
    mask = c < cols
    w = tl.load(w_ptr + c, mask=mask, other=0.0)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0) * ROWS, min(tl.program_id(0) * ROWS + ROWS, rows)):
        x = tl.load(x_ptr + row * cols + c, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + c, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        hat = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        g = dy * w
        dx = rstd * (g - tl.sum(g, 0) / cols - hat * tl.sum(g * hat, 0) / cols)
        tl.store(dx_ptr + row * cols + c, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dw += dy * hat
        db += dy
    tl.atomic_add(dw_ptr + c, dw, mask=mask)
    tl.atomic_add(db_ptr + c, db, mask=mask)


@case()
def layernorm_forward_and_backward(run: Run) -> None:
    rows, cols = run.size(7, 150), run.size(219, 777)
    block = triton.next_power_of_2(cols)
    for dtype in (torch.float32, torch.bfloat16):
        x, dy = run.normal(rows, cols, dtype=dtype), run.normal(rows, cols, dtype=dtype)
        w, b = run.normal(cols) + 1, run.normal(cols)
        y, dx = torch.empty_like(x), torch.empty_like(x)
        mean, rstd, dw, db = torch.empty(rows), torch.empty(rows), torch.zeros(cols), torch.zeros(cols)
        run.launch(layernorm_kernel, (rows,), x, w, b, y, mean, rstd, cols, 1e-5, BLOCK=block)
        args = (x, w, dy, mean, rstd, dx, dw, db, rows, cols)
        run.launch(layernorm_backward_kernel, (triton.cdiv(rows, 4),), *args, ROWS=4, BLOCK=block)
        leaf = [t.double().requires_grad_() for t in (x, w, b)]
        expected = torch.nn.functional.layer_norm(leaf[0], (cols,), leaf[1], leaf[2], 1e-5)
        expected.backward(dy.double())
        run.close(f"y {dtype}", y, expected.detach(), k=cols)
        run.close(f"dx {dtype}", dx, leaf[0].grad, k=cols, magnitude=2.0)
        run.close(f"dw {dtype}", dw, leaf[1].grad, k=rows, magnitude=4.0)
        run.close(f"db {dtype}", db, leaf[2].grad, k=rows, magnitude=4.0)


@triton.jit
def rmsnorm_kernel(x_ptr, w_ptr, y_ptr, rows, cols, eps, BM: tl.constexpr, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    c = tl.arange(0, BLOCK)[None, :]
    mask = (m < rows) & (c < cols)
    x = tl.load(x_ptr + m * cols + c, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)
    w = tl.load(w_ptr + c, mask=c < cols, other=0.0)
    tl.store(y_ptr + m * cols + c, (x * scale * w).to(y_ptr.dtype.element_ty), mask=mask)


@case()
def rmsnorm(run: Run) -> None:
    rows, cols = run.size(11, 300), run.size(130, 700)
    x, w = run.normal(rows, cols, dtype=torch.float16), run.normal(cols)
    y = torch.empty_like(x)
    block = triton.next_power_of_2(cols)
    run.launch(rmsnorm_kernel, (triton.cdiv(rows, 4),), x, w, y, rows, cols, 1e-6, BM=4, BLOCK=block)
    wide = x.double()
    expected = wide * torch.rsqrt((wide * wide).mean(1, keepdim=True) + 1e-6) * w.double()
    run.close("y", y, expected, k=cols)


@triton.jit
def cross_entropy_kernel(logits_ptr, target_ptr, loss_ptr, grad_ptr, cols, ignore, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    c = tl.arange(0, BLOCK)
    if target == ignore:
        tl.store(loss_ptr + row, 0.0)
        tl.store(grad_ptr + row * cols + c, 0.0, mask=c < cols)
        return
    x = tl.load(logits_ptr + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
    peak = tl.max(x, 0)
    log_sum = peak + tl.log(tl.sum(tl.exp(x - peak), 0))
    tl.store(loss_ptr + row, log_sum - tl.load(logits_ptr + row * cols + target).to(tl.float32))
    grad = tl.exp(x - log_sum) - tl.where(c == target, 1.0, 0.0)
    tl.store(grad_ptr + row * cols + c, grad, mask=c < cols)


@case()
def cross_entropy_with_its_gradient(run: Run) -> None:
    rows, cols = run.size(9, 150), run.size(300, 1500)
    x, target = run.normal(rows, cols), run.integers(0, cols, rows, dtype=torch.int64)
    target[2] = -100
    loss, grad = torch.empty(rows), torch.empty(rows, cols)
    block = triton.next_power_of_2(cols)
    run.launch(cross_entropy_kernel, (rows,), x, target, loss, grad, cols, -100, BLOCK=block)
    wide = x.double().requires_grad_()
    expected = torch.nn.functional.cross_entropy(wide, target, reduction="none", ignore_index=-100)
    expected.sum().backward()
    run.close("loss", loss, expected.detach(), k=4, magnitude=8.0)
    run.close("gradient", grad, wide.grad, k=4, roundings=8)


@triton.jit
def extremes_kernel(x_ptr, value_ptr, index_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    rows = tl.num_programs(0)
    c = tl.arange(0, BLOCK)
    high = tl.load(x_ptr + row * cols + c, mask=c < cols, other=-float("inf"))
    low = tl.load(x_ptr + row * cols + c, mask=c < cols, other=float("inf"))
    top, where = tl.max(high, axis=0, return_indices=True)
    tl.store(value_ptr + row, top)
    tl.store(value_ptr + rows + row, tl.min(low, axis=0))
    tl.store(index_ptr + row, where)
    tl.store(index_ptr + rows + row, tl.argmin(low, axis=0))
    tl.store(index_ptr + 2 * rows + row, tl.argmax(high, axis=0, tie_break_left=False))


@case()
def argmin_and_argmax(run: Run) -> None:
    rows, cols = run.size(6, 12), run.size(200, 900)
    block = triton.next_power_of_2(cols)
    for dtype in (torch.float32, torch.float16):
        x = run.integers(-50, 50, rows, cols).to(dtype)
        values, index = torch.empty(2, rows, dtype=dtype), torch.empty(3, rows, dtype=torch.int32)
        run.launch(extremes_kernel, (rows,), x, values, index, cols, BLOCK=block, num_warps=2)
        top = x.max(1).values
        run.equal(f"values {dtype}", values, torch.stack([top, x.min(1).values]))
        first, low = (x == top[:, None]).int().argmax(1), (x == x.min(1).values[:, None]).int().argmax(1)
        run.equal(f"first index {dtype}", index[:2], torch.stack([first, low]).int())
        run.equal(f"an index of the top {dtype}", x.gather(1, index[2:].long().t())[:, 0], top)


@triton.jit
def column_sums_kernel(x_ptr, out_ptr, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, rows, BM):
        m = start + tl.arange(0, BM)
        total += tl.load(
            x_ptr + m[:, None] * cols + n[None, :], mask=(m[:, None] < rows) & (n[None, :] < cols), other=0.0
        )
    tl.store(out_ptr + n, tl.sum(total, axis=0), mask=n < cols)


@case()
def column_sums(run: Run) -> None:
    rows, cols = run.size(70, 700), run.size(45, 1000)
    x, out = run.normal(rows, cols), torch.empty(cols)
    run.launch(column_sums_kernel, (triton.cdiv(cols, 32),), x, out, rows, cols, BM=32, BN=32)
    run.close("sums", out, x.double().sum(0), k=rows)


@triton.jit
def welford_merge(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    count = count_a + count_b
    delta = mean_b - mean_a
    share = tl.where(count == 0, 0.0, count_b / count)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count


@triton.jit
def welford_kernel(x_ptr, mean_ptr, var_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0)
    ones = tl.where(c < cols, 1.0, 0.0)
    mean, m2, count = tl.reduce((x, tl.zeros_like(x), ones), 0, welford_merge)
    tl.store(mean_ptr + row, mean)
    tl.store(var_ptr + row, m2 / count)


@case()
def welford_by_a_reduction_of_tuples(run: Run) -> None:
    rows, cols = run.size(4, 16), run.size(300, 1000)
    x, mean, var = run.normal(rows, cols) + 3, torch.empty(rows), torch.empty(rows)
    run.launch(welford_kernel, (rows,), x, mean, var, cols, BLOCK=triton.next_power_of_2(cols))
    run.close("mean", mean, x.double().mean(1), k=cols, magnitude=3.0)
    run.close("variance", var, x.double().var(1, unbiased=False), k=cols, magnitude=3.0)
