"""Own kernels for the operators of GPT-2, as a learner of unit 04 has them: small, right, and not fast."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    t = 2 * tl.sigmoid(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)) - 1
    tl.store(y_ptr + at, 0.5 * x * (1 + t), mask=at < n)


@triton.jit
def gelu_backward_kernel(dy_ptr, x_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    dy = tl.load(dy_ptr + at, mask=at < n)
    t = 2 * tl.sigmoid(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)) - 1
    inner = 0.7978845608028654 * (1 + 3 * 0.044715 * x * x)
    tl.store(dx_ptr + at, dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner), mask=at < n)


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        gelu_backward_kernel[(triton.cdiv(x.numel(), BLOCK),)](dy.contiguous(), x, dx, x.numel(), BLOCK=BLOCK)
        return dx


def gelu(x):
    return Gelu.apply(x)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < columns
    x = tl.load(x_ptr + at, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + at, e / tl.sum(e, axis=0), mask=mask)


def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def layernorm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + i, mask=i < columns, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    away = tl.where(i < columns, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(away * away, axis=0) / columns + eps)
    w, b = tl.load(w_ptr + i, mask=i < columns), tl.load(b_ptr + i, mask=i < columns)
    tl.store(y_ptr + row * columns + i, away * rstd * w + b, mask=i < columns)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


def layernorm(x, weight, bias, eps):
    y, mean, rstd = torch.empty_like(x), torch.empty(len(x)), torch.empty(len(x))
    block = triton.next_power_of_2(x.shape[1])
    layernorm_kernel[(len(x),)](x, weight, bias, y, mean, rstd, x.shape[1], eps, BLOCK=block)
    return y, mean, rstd


@triton.jit
def layernorm_backward_kernel(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, columns, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    dy = tl.load(dy_ptr + row * columns + i, mask=mask, other=0.0)
    x = tl.load(x_ptr + row * columns + i, mask=mask, other=0.0)
    rstd = tl.load(rstd_ptr + row)
    unit = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    g = dy * tl.load(w_ptr + i, mask=mask, other=0.0)
    dx = (g - tl.sum(g, axis=0) / columns - unit * (tl.sum(g * unit, axis=0) / columns)) * rstd
    tl.store(dx_ptr + row * columns + i, dx, mask=mask)
    tl.atomic_add(dw_ptr + i, dy * unit, mask=mask)
    tl.atomic_add(db_ptr + i, dy, mask=mask)


def layernorm_backward(dy, x, weight, mean, rstd):
    dx, dw, db = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
    block = triton.next_power_of_2(x.shape[1])
    layernorm_backward_kernel[(len(x),)](dy, x, weight, mean, rstd, dx, dw, db, x.shape[1], BLOCK=block)
    return dx, dw, db


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.where(tl.rand(seed, at) >= p, x / (1 - p), 0.0), mask=at < n)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p, ctx.seed = p, seed
        return dropped(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        return dropped(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropped(x, p, seed):
    y = torch.empty_like(x)
    dropout_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), p, seed, BLOCK=BLOCK)
    return y


def dropout(x, p, seed):
    return Dropout.apply(x, p, seed)


@triton.jit
def cross_entropy_kernel(x_ptr, target_ptr, loss_ptr, lse_ptr, columns, ignored, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + i, mask=i < columns, other=float("-inf"))
    largest = tl.max(x, axis=0)
    lse = largest + tl.log(tl.sum(tl.exp(x - largest), axis=0))
    target = tl.load(target_ptr + row)
    wanted = tl.load(x_ptr + row * columns + target, mask=target != ignored, other=0.0)
    tl.store(loss_ptr + row, tl.where(target == ignored, 0.0, lse - wanted))
    tl.store(lse_ptr + row, lse)


@triton.jit
def cross_entropy_backward_kernel(x_ptr, target_ptr, lse_ptr, scale_ptr, dx_ptr, columns, ignored, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + i, mask=i < columns, other=float("-inf"))
    target = tl.load(target_ptr + row)
    scale = tl.where(target == ignored, 0.0, tl.load(scale_ptr))
    dx = (tl.exp(x - tl.load(lse_ptr + row)) - tl.where(i == target, 1.0, 0.0)) * scale
    tl.store(dx_ptr + row * columns + i, dx, mask=i < columns)


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, ignore_index):
        losses, lse = torch.empty(len(logits)), torch.empty(len(logits))
        ctx.block = triton.next_power_of_2(logits.shape[1])
        cross_entropy_kernel[(len(logits),)](
            logits, targets, losses, lse, logits.shape[1], ignore_index, BLOCK=ctx.block
        )
        ctx.count, ctx.ignored = (targets != ignore_index).sum(), ignore_index
        ctx.save_for_backward(logits, targets, lse)
        return losses.sum() / ctx.count

    @staticmethod
    def backward(ctx, dloss):
        logits, targets, lse = ctx.saved_tensors
        dx = torch.empty_like(logits)
        cross_entropy_backward_kernel[(len(logits),)](
            logits, targets, lse, dloss / ctx.count, dx, logits.shape[1], ctx.ignored, BLOCK=ctx.block
        )
        return dx, None, None


def cross_entropy(logits, targets, ignore_index=-100):
    return CrossEntropy.apply(logits, targets, ignore_index)


OWN = {
    "layer_norm": (layernorm, layernorm_backward),
    "gelu": gelu,
    "softmax": softmax,
    "cross_entropy": cross_entropy,
    "dropout": dropout,
}
