"""Reductions, scans, sorts, normalisations, softmax: what crosses lanes and waves."""

import torch
import triton
import triton.language as tl

from . import case, randint, randn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * stride + c, e / tl.sum(e, 0), mask=c < n)


@case()
def softmax(target):
    for cols in (1, 31, 781, 1024):
        x = randn(9, cols)
        out = torch.zeros_like(x)
        softmax_kernel[(9,)](x, out, cols, cols, BLOCK=triton.next_power_of_2(cols))
        yield f"{cols} columns", out, x.double().softmax(1), 1e-6


@triton.jit
def softmax_backward_kernel(y_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + row * n + c, mask=c < n, other=0.0)
    dy = tl.load(dy_ptr + row * n + c, mask=c < n, other=0.0)
    tl.store(dx_ptr + row * n + c, y * (dy - tl.sum(y * dy, 0)), mask=c < n)


@case()
def softmax_backward(target):
    y, dy = randn(5, 200).softmax(1), randn(5, 200, seed=1)
    dx = torch.zeros_like(y)
    softmax_backward_kernel[(5,)](y, dy, dx, 200, BLOCK=256)
    yd, dyd = y.double(), dy.double()
    yield "dx", dx, yd * (dyd - (yd * dyd).sum(1, keepdim=True)), 1e-6


@triton.jit
def layernorm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, mean_ptr, rstd_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    keep = c < n
    x = tl.load(x_ptr + row * n + c, mask=keep, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / n
    d = tl.where(keep, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(d * d, 0) / n + eps)
    y = d * rstd * tl.load(w_ptr + c, mask=keep) + tl.load(b_ptr + c, mask=keep)
    tl.store(out_ptr + row * n + c, y, mask=keep)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def layernorm_backward_kernel(dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    keep = c < n
    dy = tl.load(dy_ptr + row * n + c, mask=keep, other=0.0)
    x = tl.load(x_ptr + row * n + c, mask=keep, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + c, mask=keep, other=0.0)
    rstd = tl.load(rstd_ptr + row)
    xhat = tl.where(keep, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    wdy = w * dy
    dx = (wdy - (xhat * tl.sum(xhat * wdy, 0) + tl.sum(wdy, 0)) / n) * rstd
    tl.store(dx_ptr + row * n + c, dx, mask=keep)
    tl.atomic_add(dw_ptr + c, dy * xhat, mask=keep)
    tl.atomic_add(db_ptr + c, dy, mask=keep)


@case()
def layernorm_forward_and_backward(target):
    rows, n = 13, 300
    x, w, b, dy = randn(rows, n), randn(n, seed=1), randn(n, seed=2), randn(rows, n, seed=3)
    out, mean, rstd = torch.zeros(rows, n), torch.zeros(rows), torch.zeros(rows)
    layernorm_kernel[(rows,)](x, w, b, out, mean, rstd, n, 1e-5, BLOCK=512)
    xd, wd, bd = (t.double().requires_grad_() for t in (x, w, b))
    want = torch.nn.functional.layer_norm(xd, (n,), wd, bd)
    yield "y", out, want.detach(), 1e-5
    want.backward(dy.double())
    dx, dw, db = torch.zeros(rows, n), torch.zeros(n), torch.zeros(n)
    layernorm_backward_kernel[(rows,)](dy, x, w, mean, rstd, dx, dw, db, n, BLOCK=512)
    yield "dx", dx, xd.grad, 1e-5
    yield "dw", dw, wd.grad, 1e-5
    yield "db", db, bd.grad, 1e-5


@triton.jit
def extremes_kernel(x_ptr, value_ptr, index_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + c, mask=c < n, other=-1e30)
    best, where = tl.max(x, 0, return_indices=True)
    tl.store(value_ptr + row, best)
    tl.store(index_ptr + 2 * row, where)
    low = tl.load(x_ptr + row * n + c, mask=c < n, other=1e30)
    tl.store(index_ptr + 2 * row + 1, tl.argmin(low, 0))


@case()
def argmax_and_argmin(target):
    x = randn(6, 333)
    x[1, 5] = x[1, 200] = 9.0  # the first of equals
    value, index = torch.zeros(6), torch.zeros(6, 2, dtype=torch.int32)
    extremes_kernel[(6,)](x, value, index, 333, BLOCK=512)
    yield "max", value, x.max(1).values, 0
    yield "argmax", index[:, 0], x.argmax(1).int(), 0
    yield "argmin", index[:, 1], x.argmin(1).int(), 0


@triton.jit
def _decay(a, b):
    return a * 0.5 + b


@triton.jit
def scan_kernel(x_ptr, out_ptr, N: tl.constexpr, M: tl.constexpr):
    at = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.cumsum(x, 0))
    tl.store(out_ptr + N * M + at, tl.cumprod(x, 1))
    tl.store(out_ptr + 2 * N * M + at, tl.cumsum(x, 1, reverse=True))


@case()
def scans(target):
    n, m = 128, 16
    x = randn(n, m) * 0.3 + 1
    out = torch.zeros(3, n, m)
    scan_kernel[(1,)](x, out, N=n, M=m)
    yield "cumsum", out[0], x.double().cumsum(0), 1e-5
    yield "cumprod", out[1], x.double().cumprod(1), 1e-5
    yield "reverse", out[2], x.double().flip(1).cumsum(1).flip(1), 1e-5


@triton.jit
def sort_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.sort(tl.load(x_ptr + i)))
    tl.store(out_ptr + N + i, tl.sort(tl.load(x_ptr + i), descending=True))


@case()
def sorts(target):
    for dtype in (torch.int32, torch.float32, torch.float16, torch.int64):
        x = randint(-1000, 1000, 256, dtype=dtype)
        out = torch.zeros(512, dtype=dtype)
        sort_kernel[(1,)](x, out, N=256)
        yield f"up {dtype}", out[:256], x.sort().values, 0
        yield f"down {dtype}", out[256:], x.sort(descending=True).values, 0


@triton.jit
def topk_kernel(x_ptr, out_ptr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    tl.store(out_ptr + row * K + tl.arange(0, K), tl.topk(x, K))


@case()
def topk(target):
    x = randn(4, 128)
    out = torch.zeros(4, 8)
    topk_kernel[(4,)](x, out, N=128, K=8)
    yield "topk", out, x.topk(8).values, 0


@triton.jit
def histogram_kernel(x_ptr, out_ptr, n, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.atomic_add(out_ptr + tl.arange(0, BINS), tl.histogram(x, BINS))


@case()
def histogram(target):
    x = randint(0, 64, 2048)
    out = torch.zeros(64, dtype=torch.int32)
    histogram_kernel[(4,)](x, out, 2048, N=512, BINS=64)
    yield "bins", out, torch.bincount(x, minlength=64).int(), 0


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.gather(tl.load(x_ptr + i), tl.load(index_ptr + i), 0))


@case()
def gather(target):
    x, index, out = randn(256), randint(0, 256, 256), torch.zeros(256)
    gather_kernel[(1,)](x, index, out, N=256)
    yield "gather", out, x[index.long()], 0


@triton.jit
def shapes_kernel(x_ptr, out_ptr, N: tl.constexpr):
    r = tl.arange(0, N)
    at = r[:, None] * N + r[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.trans(x))
    a, b = tl.split(tl.reshape(x, (N, N // 2, 2)))
    tl.store(out_ptr + N * N + at, tl.reshape(tl.join(b, a), (N, N)))
    tl.store(out_ptr + 2 * N * N + at, tl.flip(x, 1))


@case()
def transposes_and_joins(target):
    for dtype in (torch.float16, torch.float32, torch.int8):
        x = randint(-100, 100, 64, 64, dtype=dtype)
        out = torch.zeros(3, 64, 64, dtype=dtype)
        shapes_kernel[(1,)](x, out, N=64)
        pairs = x.reshape(64, 32, 2)
        yield f"trans {dtype}", out[0], x.t(), 0
        yield f"swapped pairs {dtype}", out[1], pairs.flip(2).reshape(64, 64), 0
        yield f"flip {dtype}", out[2], x.flip(1), 0


@triton.jit
def sums_kernel(x_ptr, out_ptr, N: tl.constexpr, M: tl.constexpr):
    at = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + tl.arange(0, M), tl.sum(x, 0))
    tl.store(out_ptr + M + tl.arange(0, N), tl.sum(x, 1))
    tl.store(out_ptr + M + N, tl.max(tl.max(x, 1), 0))
    tl.store(out_ptr + M + N + 1, tl.xor_sum(tl.xor_sum(x, 1), 0))


@case()
def integer_sums_along_both_axes(target):
    n, m = 32, 64
    x = randint(-99, 99, n, m)
    out = torch.zeros(n + m + 2, dtype=torch.int32)
    sums_kernel[(1,)](x, out, N=n, M=m)
    xors = 0
    for v in x.flatten().tolist():
        xors ^= v
    yield "axis 0", out[:m], x.sum(0).int(), 0
    yield "axis 1", out[m : m + n], x.sum(1).int(), 0
    yield "max, xor", out[m + n :], torch.tensor([int(x.max()), xors], dtype=torch.int32), 0


@triton.jit
def cross_entropy_kernel(x_ptr, label_ptr, loss_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + c, mask=c < n, other=-float("inf"))
    label = tl.load(label_ptr + row)
    top = tl.max(x, 0)
    e = tl.exp(x - top)
    total = tl.sum(e, 0)
    picked = tl.sum(tl.where(c == label, x, 0.0), 0)
    tl.store(loss_ptr + row, tl.log(total) + top - picked)
    tl.store(dx_ptr + row * n + c, e / total - tl.where(c == label, 1.0, 0.0), mask=c < n)


@case()
def cross_entropy(target):
    x, label = randn(7, 150), randint(0, 150, 7)
    loss, dx = torch.zeros(7), torch.zeros(7, 150)
    cross_entropy_kernel[(7,)](x, label, loss, dx, 150, BLOCK=256)
    xd = x.double().requires_grad_()
    want = torch.nn.functional.cross_entropy(xd, label.long(), reduction="none")
    want.sum().backward()
    yield "loss", loss, want.detach(), 1e-5
    yield "dx", dx, xd.grad, 1e-6
