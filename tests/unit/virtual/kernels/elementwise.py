"""Elementwise kernels: masks, strides, broadcasting, integers, conversions, special functions."""

import numpy as np
import torch
import triton
import triton.language as tl

from . import case, randint, randn


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=keep) + tl.load(y_ptr + at, mask=keep, other=0.0), mask=keep)


@case()
def vector_add(target):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        n = 3001
        x = randint(-9, 9, n, dtype=dtype) if not dtype.is_floating_point else randn(n, dtype=dtype)
        y = randint(-9, 9, n, dtype=dtype, seed=1) if not dtype.is_floating_point else randn(n, dtype=dtype, seed=1)
        out = torch.full((n + 7,), 5, dtype=dtype)
        add_kernel[(triton.cdiv(n, 512),)](x, y, out, n, BLOCK=512)
        yield f"sum {dtype}", out[:n], x + y, 0
        yield "the tail stays", out[n:], torch.full((7,), 5, dtype=dtype), 0


@triton.jit
def strided_kernel(x_ptr, out_ptr, rows, cols, stride_r, stride_c, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    keep = (r < rows)[:, None] & (c < cols)[None, :]
    x = tl.load(x_ptr + r[:, None] * stride_r + c[None, :] * stride_c, mask=keep)
    tl.store(out_ptr + r[:, None] * cols + c[None, :], x * 2, mask=keep)


@case()
def strided_and_transposed(target):
    base = randn(70, 96)
    for name, x in (
        ("rows", base),
        ("transposed", base.t()),
        ("every third", base[:, ::3]),
        ("broadcast", base[:1].expand(40, 96)),
    ):
        out = torch.zeros(x.shape)
        strided_kernel[(triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 32))](
            x, out, x.shape[0], x.shape[1], x.stride(0), x.stride(1), BR=16, BC=32
        )
        yield name, out, x * 2, 0


@triton.jit
def integer_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x_ptr + i)
    b = tl.load(y_ptr + i)
    s = b & 7
    tl.store(out_ptr + i, a // b)
    tl.store(out_ptr + N + i, a % b)
    tl.store(out_ptr + 2 * N + i, a << s)
    tl.store(out_ptr + 3 * N + i, a >> s)
    tl.store(out_ptr + 4 * N + i, ~(a ^ b) | (a & b))
    tl.store(out_ptr + 5 * N + i, tl.minimum(a, b))
    tl.store(out_ptr + 6 * N + i, tl.maximum(a, b))
    tl.store(out_ptr + 7 * N + i, tl.where(a > b, a - b, a * b))


@case()
def integers(target):
    n = 256
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        top = torch.iinfo(dtype).max
        x, y = randint(-top, top, n, dtype=dtype), randint(1, 100, n, dtype=dtype, seed=1)
        y[::2] = -y[::2]
        out = torch.zeros(8 * n, dtype=dtype)
        integer_kernel[(1,)](x, y, out, N=n)
        s = (y & 7).to(dtype)
        want = [torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x << s, x >> s, ~(x ^ y) | (x & y),
                torch.minimum(x, y), torch.maximum(x, y), torch.where(x > y, x - y, x * y)]  # fmt: skip
        for i, reference in enumerate(want):
            yield f"{dtype} result {i}", out[i * n : (i + 1) * n], reference.to(dtype), 0


@triton.jit
def unsigned_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x_ptr + i).to(tl.uint32, bitcast=True)
    b = tl.load(y_ptr + i).to(tl.uint32, bitcast=True)
    tl.store(out_ptr + i, (a // b).to(tl.int32, bitcast=True))
    tl.store(out_ptr + N + i, (a % b).to(tl.int32, bitcast=True))
    tl.store(out_ptr + 2 * N + i, tl.umulhi(a, b).to(tl.int32, bitcast=True))
    tl.store(out_ptr + 3 * N + i, (a >> 3).to(tl.int32, bitcast=True))
    tl.store(out_ptr + 4 * N + i, (a < b).to(tl.int32))


@case()
def unsigned_integers(target):
    n = 256
    x, y = randint(-(2**31), 2**31 - 1, n), randint(-(2**31), 2**31 - 1, n, seed=1)
    y[:50] = randint(1, 99, 50)
    out = torch.zeros(5 * n, dtype=torch.int32)
    unsigned_kernel[(1,)](x, y, out, N=n)
    a, b = x.numpy().view("u4").astype("u8"), y.numpy().view("u4").astype("u8")
    for i, want in enumerate((a // b, a % b, a * b >> 32, a >> 3, a < b)):
        yield f"result {i}", out[i * n : (i + 1) * n], torch.from_numpy(want.astype("u4").view("i4").copy()), 0


@triton.jit
def convert_kernel(x_ptr, half_ptr, bf_ptr, byte_ptr, double_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x_ptr + i)
    tl.store(half_ptr + i, v.to(tl.float16))
    tl.store(bf_ptr + i, v.to(tl.bfloat16))
    tl.store(byte_ptr + i, tl.clamp(v, -100.0, 100.0).to(tl.int8))
    tl.store(double_ptr + i, v.to(tl.float64))
    tl.store(double_ptr + N + i, tl.clamp(v, -1e9, 1e9).to(tl.int64).to(tl.float64))
    tl.store(double_ptr + 2 * N + i, v.to(tl.float16, fp_downcast_rounding="rtz").to(tl.float64))
    tl.store(double_ptr + 3 * N + i, tl.abs(tl.clamp(v, -1e9, 1e9)).to(tl.uint32).to(tl.float32).to(tl.float64))


@case()
def conversions(target):
    n = 512
    x = randn(n) * torch.logspace(-7, 5, n)
    x[:6] = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40])
    half, bf, byte = (
        torch.zeros(n, dtype=torch.float16),
        torch.zeros(n, dtype=torch.bfloat16),
        torch.zeros(n, dtype=torch.int8),
    )
    double = torch.zeros(4 * n, dtype=torch.float64)
    convert_kernel[(1,)](x, half, bf, byte, double, N=n)
    yield "float16", half, x.half(), 0
    yield "bfloat16", bf, x.bfloat16(), 0
    finite = ~x.isnan()
    yield "int8", byte[finite], x.clamp(-100, 100).to(torch.int8)[finite], 0
    yield "float64", double[:n], x.double(), 0
    yield "int64", double[n : 2 * n][finite], x.clamp(-1e9, 1e9).long().double()[finite], 0
    near = x.half().double()
    over = near.abs() > x.double().abs()
    toward = torch.where(over, (x.half().view(torch.int16) - 1).view(torch.float16).double(), near)
    yield "toward zero", double[2 * n : 3 * n][x.abs() < 60000], toward[x.abs() < 60000], 0
    yield "uint32", double[3 * n :][finite], x.clamp(-1e9, 1e9).abs().long().float().double()[finite], 0


@triton.jit
def special_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x_ptr + i)
    p = tl.abs(v) + 0.001
    tl.store(out_ptr + i, tl.exp(v))
    tl.store(out_ptr + N + i, tl.exp2(v))
    tl.store(out_ptr + 2 * N + i, tl.log(p))
    tl.store(out_ptr + 3 * N + i, tl.log2(p))
    tl.store(out_ptr + 4 * N + i, tl.sqrt(p))
    tl.store(out_ptr + 5 * N + i, tl.rsqrt(p))
    tl.store(out_ptr + 6 * N + i, tl.sin(v))
    tl.store(out_ptr + 7 * N + i, tl.cos(v))
    tl.store(out_ptr + 8 * N + i, v / p)
    tl.store(out_ptr + 9 * N + i, tl.erf(v))
    tl.store(out_ptr + 10 * N + i, tl.sigmoid(v))
    tl.store(out_ptr + 11 * N + i, tl.div_rn(v, 3.0))
    tl.store(out_ptr + 12 * N + i, tl.sqrt_rn(p))
    tl.store(out_ptr + 13 * N + i, tl.floor(v))
    tl.store(out_ptr + 14 * N + i, tl.ceil(v))
    tl.store(out_ptr + 15 * N + i, tl.fma(v, v, p))
    tl.store(out_ptr + 16 * N + i, tl.clamp(v, -1.0, 1.0))


@case()
def special_functions(target):
    n = 256
    x = randn(n) * 3
    out = torch.zeros(17 * n)
    special_kernel[(1,)](x, out, N=n)
    v, p = x.double(), (x.abs() + 0.001).double()
    names = [
        "exp",
        "exp2",
        "log",
        "log2",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "div",
        "erf",
        "sigmoid",
        "div_rn",
        "sqrt_rn",
        "floor",
        "ceil",
        "fma",
        "clamp",
    ]
    wants = [v.exp(), v.exp2(), p.log(), p.log2(), p.sqrt(), p.rsqrt(), v.sin(), v.cos(), v / p, v.erf(), v.sigmoid(),
             v / 3, p.sqrt(), v.floor(), v.ceil(), v * v + p, v.clamp(-1, 1)]  # fmt: skip
    for i, (name, want) in enumerate(zip(names, wants, strict=True)):
        exact = name in ("div_rn", "sqrt_rn", "floor", "ceil", "fma", "clamp")
        got = out[i * n : (i + 1) * n]
        if exact:
            yield name, got, want.float(), 0
        else:
            yield name, got, want, 1e-5


@triton.jit
def halves_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x_ptr + i)
    b = tl.load(y_ptr + i)
    tl.store(out_ptr + i, a + b)
    tl.store(out_ptr + N + i, a * b)
    tl.store(out_ptr + 2 * N + i, a - b)
    tl.store(out_ptr + 3 * N + i, tl.maximum(a, b))
    tl.store(out_ptr + 4 * N + i, tl.minimum(a, b))
    tl.store(out_ptr + 5 * N + i, tl.where(a > b, a, b))
    tl.store(out_ptr + 6 * N + i, -a)
    tl.store(out_ptr + 7 * N + i, tl.abs(a))


@case()
def half_precision(target):
    n = 512
    for dtype in (torch.float16, torch.bfloat16):
        x, y = randn(n, dtype=dtype), randn(n, dtype=dtype, seed=1)
        out = torch.zeros(8 * n, dtype=dtype)
        halves_kernel[(1,)](x, y, out, N=n)
        wants = [x + y, x * y, x - y, torch.maximum(x, y), torch.minimum(x, y), torch.maximum(x, y), -x, x.abs()]
        for i, want in enumerate(wants):
            yield f"{dtype} result {i}", out[i * n : (i + 1) * n], want, 0


@triton.jit
def philox_kernel(out_ptr, seed, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    a, b, c, d = tl.randint4x(seed, i)
    tl.store(out_ptr + 4 * i, a)
    tl.store(out_ptr + 4 * i + 1, b)
    tl.store(out_ptr + 4 * i + 2, c)
    tl.store(out_ptr + 4 * i + 3, d)


def _philox(seed: int, n: int) -> torch.Tensor:
    """Philox 4x32 with 10 rounds, from its definition (Salmon et al. 2011)."""
    out = []
    for i in range(n):
        counter, key = [i, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
        for _ in range(10):
            a, b = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
            counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
            key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
        out += counter
    return torch.tensor(out, dtype=torch.int64)


@case()
def philox_random(target):
    n = 256
    out = torch.zeros(4 * n, dtype=torch.int32)
    philox_kernel[(2,)](out, 1234, N=n // 2)
    yield "words", out.long() & 0xFFFFFFFF, _philox(1234, n), 0


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    keep = tl.rand(seed, i) > p
    tl.store(out_ptr + i, tl.where(keep, x / (1 - p), 0.0), mask=i < n)


@case()
def dropout(target):
    n = 2000
    x, out = randn(n).abs() + 1, torch.zeros(n)
    dropout_kernel[(triton.cdiv(n, 256),)](x, out, n, 0.25, 7, BLOCK=256)
    kept = out != 0
    yield "kept values are scaled", out[kept], x[kept] / 0.75, 1e-6
    yield "share kept", kept.float().mean(), torch.tensor(0.75), 0.05


@triton.jit
def fp8_kernel(x_ptr, code_ptr, back_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(code_ptr + i, tl.load(x_ptr + i).to(code_ptr.dtype.element_ty))
    tl.store(back_ptr + i, tl.load(code_ptr + i).to(tl.float32))


@case(refused={"gfx90a": "no 8-bit floats", "gfx1100": "no 8-bit floats", "sm_80": "no fp8e4nv before sm_89"})
def fp8_conversions(target):
    n = 1024
    formats = {"gfx942": (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)}.get(
        target, (torch.float8_e4m3fn, torch.float8_e5m2)
    )
    for dtype in formats:
        x = randn(n) * torch.logspace(-3, 2, n)
        x = x.clamp(-200, 200)
        code, back = torch.zeros(n, dtype=dtype), torch.zeros(n)
        fp8_kernel[(1,)](x, code, back, N=n)
        if target == "sm_89":  # the compiler cuts float32 to float16 first (cvt.rz), then rounds
            half = x.half().numpy()
            x = torch.from_numpy(np.where(np.abs(half) > x.abs().numpy(), np.nextafter(half, np.float16(0)), half))
        yield f"{dtype} codes", code.float(), x.to(dtype).float(), 0
        yield f"{dtype} back", back, x.to(dtype).float(), 0
