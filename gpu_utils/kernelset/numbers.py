"""Number formats and arithmetic: functions of the math libraries, conversions, integers of every width."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from gpu_utils.kernelset.case import NVIDIA, Run, case


@triton.jit
def language_math_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=1.0)
    tl.store(out_ptr + i, tl.exp(x), mask=mask)
    tl.store(out_ptr + n + i, tl.exp2(x), mask=mask)
    tl.store(out_ptr + 2 * n + i, tl.log(tl.abs(x)), mask=mask)
    tl.store(out_ptr + 3 * n + i, tl.log2(tl.abs(x)), mask=mask)
    tl.store(out_ptr + 4 * n + i, tl.sin(x), mask=mask)
    tl.store(out_ptr + 5 * n + i, tl.cos(x), mask=mask)
    tl.store(out_ptr + 6 * n + i, tl.sqrt(tl.abs(x)), mask=mask)
    tl.store(out_ptr + 7 * n + i, tl.rsqrt(tl.abs(x)), mask=mask)
    tl.store(out_ptr + 8 * n + i, tl.erf(x), mask=mask)
    tl.store(out_ptr + 9 * n + i, tl.sigmoid(x), mask=mask)


@case()
def math_of_the_language(run: Run) -> None:
    n = run.size(600, 8000)
    x = run.uniform(-10.0, 10.0, n)
    out = torch.empty(10, n)
    run.launch(language_math_kernel, (triton.cdiv(n, 256),), x, out, n, BLOCK=256)
    w = x.double()
    a = w.abs()
    expected = [w.exp(), w.exp2(), a.log(), a.log2(), w.sin(), w.cos(), a.sqrt(), a.rsqrt(), w.erf(), w.sigmoid()]
    names = ["exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "sigmoid"]
    for name, got, want in zip(names, out, expected, strict=True):
        # exp(x) = exp2(x * log2 e): rounding the product moves the result by 10 units per unit of the exponent
        run.close(name, got, want, k=4, roundings=16 if name in ("exp", "sigmoid") else 4)


@triton.jit
def library_math_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=1.0)
    a = tl.abs(x)
    tl.store(out_ptr + i, libdevice.exp(x), mask=mask)
    tl.store(out_ptr + n + i, libdevice.log(a), mask=mask)
    tl.store(out_ptr + 2 * n + i, libdevice.sin(x), mask=mask)
    tl.store(out_ptr + 3 * n + i, libdevice.cos(x), mask=mask)
    tl.store(out_ptr + 4 * n + i, libdevice.erf(x), mask=mask)
    tl.store(out_ptr + 5 * n + i, libdevice.rsqrt(a), mask=mask)
    tl.store(out_ptr + 6 * n + i, libdevice.tanh(x), mask=mask)
    tl.store(out_ptr + 7 * n + i, libdevice.pow(a, x), mask=mask)
    tl.store(out_ptr + 8 * n + i, libdevice.atan(x), mask=mask)
    tl.store(out_ptr + 9 * n + i, libdevice.log1p(a), mask=mask)
    tl.store(out_ptr + 10 * n + i, libdevice.floor(x), mask=mask)
    tl.store(out_ptr + 11 * n + i, libdevice.trunc(x), mask=mask)
    tl.store(out_ptr + 12 * n + i, libdevice.fmod(x, 0.0 * x + 0.75), mask=mask)


@case()
def math_of_the_libraries(run: Run) -> None:
    n = run.size(300, 4000)
    for dtype in (torch.float32, torch.float64):
        x = run.uniform(-5.0, 5.0, n, dtype=dtype)
        x[:4] = torch.tensor([1e5, -3e8, 1e22, -7e30])  # long reductions of the argument of sin and cos
        out = torch.empty(13, n, dtype=dtype)
        # without fusion: in AMD's library it breaks the float64 sine of a large argument (a product is counted twice)
        run.launch(library_math_kernel, (triton.cdiv(n, 256),), x, out, n, BLOCK=256, enable_fp_fusion=False)
        w = x.double()
        a = w.abs()
        expected = {
            "exp": w.exp(),
            "log": a.log(),
            "sin": w.sin(),
            "cos": w.cos(),
            "erf": w.erf(),
            "rsqrt": a.rsqrt(),
            "tanh": w.tanh(),
            "pow": a**w,
            "atan": w.atan(),
            "log1p": a.log1p(),
            "floor": w.floor(),
            "trunc": w.trunc(),
            "fmod": torch.fmod(w, 0.75),
        }
        for got, (name, want) in zip(out, expected.items(), strict=True):
            if name in ("floor", "trunc", "fmod"):
                run.equal(f"{name} {dtype}", got.double(), want)
            else:
                run.close(f"{name} {dtype}", got, want, k=4, roundings=4)


@triton.jit
def fp8_kernel(x_ptr, code_ptr, all_ptr, wide_ptr, half_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(code_ptr + i, tl.load(x_ptr + i, mask=i < n).to(code_ptr.dtype.element_ty), mask=i < n)
    codes = tl.load(all_ptr + tl.arange(0, 256))
    tl.store(wide_ptr + tl.arange(0, 256), codes.to(tl.float32))
    tl.store(half_ptr + tl.arange(0, 256), codes.to(tl.float16))


def toward_zero(x: torch.Tensor) -> torch.Tensor:
    """float32 to float16 without the bits that do not fit."""
    near = x.half()
    return (near.view(torch.int16) - (near.abs().double() > x.abs().double()).short()).view(torch.float16)


@case()
def fp8_conversions(run: Run) -> None:
    n = run.size(500, 8000)
    for dtype in run.fp8:
        limit = 200.0 if "e4m3" in str(dtype) else 40000.0
        for source in (torch.float32, torch.float16):
            x = (run.uniform(-1.0, 1.0, n) ** 5 * limit).to(source)
            if run.nvidia and run.flavour == "none" and source == torch.float16:
                bits = x.view(torch.int16)  # no ties: Triton 3.7 rounds here in software and takes them away from zero
                x = torch.where(bits & 0xFF == 0x80, bits | 3, bits).view(torch.float16)
            if run.flavour == "ocp" and 0 < run.capability < 90 and source == torch.float32:
                x = x.half().float()  # Triton 3.7 cuts off to float16 before it rounds to fp8
            codes = torch.empty(n, dtype=dtype)
            every = torch.arange(256, dtype=torch.uint8).view(dtype)
            wide, half = torch.empty(256), torch.empty(256, dtype=torch.float16)
            run.launch(fp8_kernel, (triton.cdiv(n, 256),), x, codes, every, wide, half, n, BLOCK=256)
            run.equal(f"{dtype} from {source}", codes.float(), x.float().to(dtype).float())
            run.equal(f"{dtype} to float32", wide, every.float())
            known = ~every.float().isnan()  # Triton 3.6 makes -0 of the FNUZ NaN
            run.equal(f"{dtype} to float16", half[known], every.float().half()[known])


@triton.jit
def float_conversions_kernel(x_ptr, half_ptr, brain_ptr, cut_ptr, double_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(half_ptr + i, x.to(tl.float16), mask=mask)
    tl.store(brain_ptr + i, x.to(tl.bfloat16), mask=mask)
    tl.store(cut_ptr + i, x.to(tl.float16, fp_downcast_rounding="rtz"), mask=mask)
    tl.store(double_ptr + i, x.to(tl.float64), mask=mask)
    tl.store(double_ptr + n + i, x.to(tl.bfloat16).to(tl.float64), mask=mask)
    tl.store(double_ptr + 2 * n + i, x.to(tl.float64).to(tl.float32).to(tl.float64), mask=mask)


@case()
def float_conversions(run: Run) -> None:
    n = run.size(700, 20_000)
    x = run.normal(n) * 10.0 ** run.uniform(-9, 4, n)
    x[:8] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 65519.99, 65520.0, 6e-8])
    half, cut = torch.empty(n, dtype=torch.float16), torch.empty(n, dtype=torch.float16)
    brain, double = torch.empty(n, dtype=torch.bfloat16), torch.empty(3, n, dtype=torch.float64)
    run.launch(float_conversions_kernel, (triton.cdiv(n, 256),), x, half, brain, cut, double, n, BLOCK=256)
    run.equal("float16", half, x.half())
    run.equal("bfloat16", brain, x.bfloat16())
    run.equal("float64", double, torch.stack([x.double(), x.bfloat16().double(), x.double()]))
    run.equal("float16 toward zero", cut, toward_zero(x))


@triton.jit
def integer_conversions_kernel(x_ptr, byte_ptr, short_ptr, long_ptr, float_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=0)
    tl.store(byte_ptr + i, x.to(tl.int8), mask=mask)
    tl.store(short_ptr + i, x.to(tl.int16), mask=mask)
    tl.store(long_ptr + i, x.to(tl.int64) * 3, mask=mask)
    tl.store(long_ptr + n + i, x.to(tl.uint32).to(tl.int64), mask=mask)
    tl.store(long_ptr + 2 * n + i, (x.to(tl.float32) * 0.001).to(tl.int64), mask=mask)
    tl.store(float_ptr + i, x.to(tl.float32), mask=mask)
    tl.store(float_ptr + n + i, x.to(tl.uint32).to(tl.float32), mask=mask)
    tl.store(float_ptr + 2 * n + i, (x.to(tl.int64) * 1234567).to(tl.float32), mask=mask)
    tl.store(float_ptr + 3 * n + i, x.to(tl.float32, bitcast=True), mask=mask)


@case()
def integer_conversions(run: Run) -> None:
    n = run.size(500, 10_000)
    x = run.integers(-(2**31), 2**31, n)
    x[:5] = torch.tensor([0, -1, -(2**31), 2**31 - 1, 16777217])
    byte, short = torch.empty(n, dtype=torch.int8), torch.empty(n, dtype=torch.int16)
    long, real = torch.empty(3, n, dtype=torch.int64), torch.empty(4, n)
    run.launch(integer_conversions_kernel, (triton.cdiv(n, 256),), x, byte, short, long, real, n, BLOCK=256)
    unsigned = x.long() & 0xFFFFFFFF
    run.equal("int8", byte, x.to(torch.int8))
    run.equal("int16", short, x.to(torch.int16))
    scaled = (x.float() * torch.tensor(0.001)).long()
    run.equal("int64", long, torch.stack([x.long() * 3, unsigned, scaled]))
    floats = [x.float(), unsigned.float(), (x.long() * 1234567).float(), x.view(torch.float32)]
    run.equal("float32", real, torch.stack(floats))


@triton.jit
def integer_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=1)
    y = tl.load(y_ptr + i, mask=mask, other=1)
    tl.store(out_ptr + i, x // y, mask=mask)
    tl.store(out_ptr + n + i, x % y, mask=mask)
    tl.store(out_ptr + 2 * n + i, x << (y & 7), mask=mask)
    tl.store(out_ptr + 3 * n + i, x >> (y & 7), mask=mask)
    tl.store(out_ptr + 4 * n + i, (x & y) | ~(x ^ y), mask=mask)
    tl.store(out_ptr + 5 * n + i, x * y - x + y, mask=mask)
    tl.store(out_ptr + 6 * n + i, tl.minimum(x, y) + tl.maximum(x, 7), mask=mask)
    tl.store(out_ptr + 7 * n + i, tl.abs(x), mask=mask)
    tl.store(out_ptr + 8 * n + i, (x < y).to(tl.int8).to(x.dtype) + (x != y).to(x.dtype), mask=mask)
    tl.store(out_ptr + 9 * n + i, tl.cdiv(x, 7), mask=mask)


@case()
def integer_arithmetic_of_every_width(run: Run) -> None:
    n = run.size(300, 5000)
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        info = torch.iinfo(dtype)
        x = run.integers(info.min + 1, info.max, n, dtype=torch.int64).to(dtype)
        y = run.integers(info.min + 1, info.max, n, dtype=torch.int64).to(dtype)
        y[:50] = run.integers(1, 9, 50).to(dtype)
        y[y == 0] = 3
        x[:3], y[:3] = torch.tensor([0, info.max, info.min + 1]).to(dtype), torch.tensor([5, -1, -1]).to(dtype)
        out = torch.empty(10, n, dtype=dtype)
        run.launch(integer_kernel, (triton.cdiv(n, 128),), x, y, out, n, BLOCK=128)
        shift = (y & 7).to(dtype)
        quotient = torch.div(x, y, rounding_mode="trunc")
        expected = [
            quotient,
            x - quotient * y,
            x << shift,
            x >> shift,
            (x & y) | ~(x ^ y),
            x * y - x + y,
            torch.minimum(x, y) + x.clamp_min(7),
            x.abs(),
            (x < y).to(dtype) + (x != y).to(dtype),
        ]
        run.equal(str(dtype), out[:9], torch.stack(expected))
        if dtype in (torch.int32, torch.int64):
            positive = x.clone().clamp_max(info.max - 8)
            run.equal(
                f"cdiv {dtype}", out[9][x == positive], torch.div(positive + 6, 7, rounding_mode="trunc")[x == positive]
            )


@triton.jit
def bits_kernel(x_ptr, y_ptr, out_ptr, wide_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=1)
    y = tl.load(y_ptr + i, mask=mask, other=1)
    tl.store(out_ptr + i, tl.umulhi(x, y), mask=mask)
    tl.store(out_ptr + n + i, x // y, mask=mask)
    tl.store(out_ptr + 2 * n + i, x % y, mask=mask)
    tl.store(out_ptr + 3 * n + i, (x >> 5) ^ (x << 7), mask=mask)
    tl.store(out_ptr + 4 * n + i, tl.maximum(x, y), mask=mask)
    a = x.to(tl.uint64) * y + x
    b = (y.to(tl.uint64) << 32) | x
    tl.store(wide_ptr + i, tl.umulhi(a, b), mask=mask)
    tl.store(wide_ptr + n + i, a >> 17, mask=mask)
    tl.store(wide_ptr + 2 * n + i, b // (a | 1), mask=mask)


@case()
def unsigned_integers_and_high_products(run: Run) -> None:
    n = run.size(200, 3000)
    x, y = (run.integers(1, 2**32, n, dtype=torch.int64) for _ in range(2))
    y[:20] = run.integers(1, 100, 20, dtype=torch.int64)
    out, wide = torch.empty(5, n, dtype=torch.uint32), torch.empty(3, n, dtype=torch.uint64)
    args = (x.to(torch.uint32), y.to(torch.uint32), out, wide, n)
    run.launch(bits_kernel, (triton.cdiv(n, 128),), *args, BLOCK=128)
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    low = 2**32 - 1
    expected = [
        [p * q >> 32 for p, q in pairs],
        [p // q for p, q in pairs],
        [p % q for p, q in pairs],
        [(p >> 5) ^ (p << 7 & low) for p, q in pairs],
        [max(p, q) for p, q in pairs],
    ]
    run.equal("32 bits", out.long(), torch.tensor(expected))
    whole = [(p * q + p, q << 32 | p) for p, q in pairs]
    high = [[a * b >> 64 for a, b in whole], [a >> 17 for a, b in whole], [b // (a | 1) for a, b in whole]]
    run.equal("64 bits", wide.view(torch.int64), torch.tensor([[v - (v >> 63 << 64) for v in row] for row in high]))


@triton.jit
def double_kernel(x_ptr, y_ptr, out_ptr, total_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    y = tl.load(y_ptr + i, mask=mask, other=1.0)
    tl.store(out_ptr + i, x / y, mask=mask)
    tl.store(out_ptr + n + i, tl.sqrt(tl.abs(x)), mask=mask)
    tl.store(out_ptr + 2 * n + i, tl.fma(x, y, x), mask=mask)
    tl.store(out_ptr + 3 * n + i, tl.floor(x) + tl.ceil(y), mask=mask)
    tl.atomic_add(total_ptr, tl.sum(x, axis=0))


@case()
def double_precision(run: Run) -> None:
    n = run.size(300, 5000)
    x, y = run.uniform(-9, 9, n, dtype=torch.float64), run.uniform(1, 9, n, dtype=torch.float64)
    out, total = torch.empty(4, n, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    run.launch(double_kernel, (triton.cdiv(n, 128),), x, y, out, total, n, BLOCK=128)
    run.close("out", out, torch.stack([x / y, x.abs().sqrt(), x * y + x, x.floor() + y.ceil()]), k=4, magnitude=16.0)
    run.close("sum", total, x.sum().reshape(1), k=n, magnitude=9.0)


@triton.jit
def half_arithmetic_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    y = tl.load(y_ptr + i, mask=mask, other=1.0)
    tl.store(out_ptr + i, x + y, mask=mask)
    tl.store(out_ptr + n + i, x * y, mask=mask)
    tl.store(out_ptr + 2 * n + i, x - y, mask=mask)
    tl.store(out_ptr + 3 * n + i, tl.maximum(x, y), mask=mask)
    tl.store(out_ptr + 4 * n + i, tl.where(x < y, x, -y), mask=mask)
    tl.store(out_ptr + 5 * n + i, tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL), mask=mask)


@case()
def half_precision_arithmetic(run: Run) -> None:
    n = run.size(400, 20_000)
    for dtype in (torch.float16, torch.bfloat16):
        x, y = run.normal(n, dtype=dtype), run.normal(n, dtype=dtype)
        y[7] = math.nan
        out = torch.empty(6, n, dtype=dtype)
        run.launch(half_arithmetic_kernel, (triton.cdiv(n, 256),), x, y, out, n, BLOCK=256)
        chosen = torch.where(x < y, x, -y)
        expected = [x + y, x * y, x - y, torch.fmax(x, y), chosen, torch.minimum(x, y)]
        run.equal(str(dtype), out, torch.stack(expected))


@triton.jit
def rounded_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=1.0)
    y = tl.load(y_ptr + i, mask=i < n, other=1.0)
    tl.store(out_ptr + i, tl.div_rn(x, y), mask=i < n)
    tl.store(out_ptr + n + i, tl.sqrt_rn(tl.abs(x)), mask=i < n)
    tl.store(out_ptr + 2 * n + i, tl.fma(x, y, -x), mask=i < n)
    tl.store(out_ptr + 3 * n + i, tl.floor(x * 8) - tl.ceil(y * 8), mask=i < n)
    tl.store(out_ptr + 4 * n + i, tl.clamp(x, -0.5, 0.5), mask=i < n)


@case()
def correctly_rounded_float32(run: Run) -> None:
    n = run.size(500, 20_000)
    x, y = run.normal(n) * 10.0 ** run.uniform(-3, 3, n), run.normal(n)
    out = torch.empty(5, n)
    run.launch(rounded_kernel, (triton.cdiv(n, 256),), x, y, out, n, BLOCK=256)
    # rounding a quotient, root or fma of float32 to float64 first is harmless here: float64 is more than twice as wide
    fma = (x.double() * y.double() - x.double()).float()
    root = x.double().abs().sqrt().float()
    exact = [(x.double() / y.double()).float(), root, fma, (x * 8).floor() - (y * 8).ceil(), x.clamp(-0.5, 0.5)]
    run.equal("out", out, torch.stack(exact))


@triton.jit
def device_bits_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + i, libdevice.popc(x), mask=i < n)
    tl.store(out_ptr + n + i, libdevice.clz(x), mask=i < n)
    tl.store(out_ptr + 2 * n + i, libdevice.brev(x), mask=i < n)


@case(NVIDIA, "these names are in NVIDIA's libdevice only")
def bit_functions_of_libdevice(run: Run) -> None:
    n = run.size(200, 3000)
    x = run.integers(-(2**31), 2**31, n)
    out = torch.empty(3, n, dtype=torch.int32)
    run.launch(device_bits_kernel, (triton.cdiv(n, 128),), x, out, n, BLOCK=128)
    words = [f"{v & 0xFFFFFFFF:032b}" for v in x.tolist()]
    expected = [
        [w.count("1") for w in words],
        [len(w) - len(w.lstrip("0")) for w in words],
        [(v := int(w[::-1], 2)) - (v >> 31 << 32) for w in words],
    ]
    run.equal("popc, clz, brev", out, torch.tensor(expected, dtype=torch.int32))
