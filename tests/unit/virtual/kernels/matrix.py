"""Matrix products and attention."""

import torch
import triton
import triton.language as tl

from . import case, randint, randn


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), ACC)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(
            a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak,
            mask=(rm < M)[:, None] & (rk < K)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn,
            mask=(rk < K)[:, None] & (rn < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=ACC)
    tl.store(
        c_ptr + rm[:, None] * stride_cm + rn[None, :],
        acc.to(c_ptr.dtype.element_ty),
        mask=(rm < M)[:, None] & (rn < N)[None, :],
    )


def matmul(a, b, out, BM=64, BN=64, BK=32, ACC=tl.float32, precision="ieee", **options):
    M, K = a.shape
    N = b.shape[1]
    matmul_kernel[(triton.cdiv(M, BM), triton.cdiv(N, BN))](
        a, b, out, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0),
        BM=BM, BN=BN, BK=BK, ACC=ACC, PRECISION=precision, **options,
    )  # fmt: skip


@case()
def matmul_float16(target):
    for M, N, K, options in ((64, 64, 64, {}), (100, 70, 130, {}), (128, 128, 64, {"num_warps": 8, "BM": 128,
    "BN": 128}),
                             (32, 32, 32, {"BM": 32, "BN": 32, "num_warps": 1}), (64, 64, 96,
                             {"num_stages": 1})):  # fmt: skip
        a, b = randn(M, K, dtype=torch.float16), randn(K, N, dtype=torch.float16, seed=1)
        out = torch.zeros(M, N)
        matmul(a, b, out, **options)
        yield f"{M}x{N}x{K} {options}", out, a.double() @ b.double(), 1e-4


@case()
def matmul_small_tiles(target):
    a, b = randn(16, 64, dtype=torch.float16), randn(64, 16, dtype=torch.float16, seed=1)
    out = torch.zeros(16, 16)
    matmul(a, b, out, BM=16, BN=16, BK=32, num_warps=1)
    yield "16x16", out, a.double() @ b.double(), 1e-4


@case()
def matmul_transposed_operands(target):
    a, b = randn(96, 64, dtype=torch.float16).t(), randn(80, 96, dtype=torch.float16, seed=1).t()
    out = torch.zeros(64, 80, dtype=torch.float16)
    matmul(a, b, out)
    yield "out", out, (a.double() @ b.double()), 2e-3


@case()
def matmul_bfloat16(target):
    a, b = randn(64, 96, dtype=torch.bfloat16), randn(96, 64, dtype=torch.bfloat16, seed=1)
    out = torch.zeros(64, 64)
    matmul(a, b, out)
    yield "out", out, a.double() @ b.double(), 1e-4


@case()
def matmul_float32(target):
    a, b = randn(64, 64), randn(64, 64, seed=1)
    out = torch.zeros(64, 64)
    matmul(a, b, out)
    yield "ieee", out, a.double() @ b.double(), 1e-5


@case(refused={"gfx90a": "no xf32", "gfx950": "no xf32", "gfx1100": "no tf32", "gfx1201": "no tf32"})
def matmul_tf32(target):
    a, b = randn(64, 64), randn(64, 64, seed=1)
    out = torch.zeros(64, 64)
    matmul(a, b, out, precision="tf32")
    yield "tf32", out, a.double() @ b.double(), 2e-2


@case()
def matmul_int8(target):
    a, b = randint(-128, 128, 64, 96, dtype=torch.int8), randint(-128, 128, 96, 64, dtype=torch.int8, seed=1)
    out = torch.zeros(64, 64, dtype=torch.int32)
    matmul(a, b, out, ACC=tl.int32)
    yield "out", out, (a.double() @ b.double()).int(), 0


@case()
def matmul_float64(target):
    a, b = randn(32, 32).double(), randn(32, 32, seed=1).double()
    out = torch.zeros(32, 32, dtype=torch.float64)
    matmul(a, b, out, BM=32, BN=32, BK=16, ACC=tl.float64)
    yield "out", out, a @ b, 1e-12


@case(refused={"gfx90a": "no 8-bit floats", "gfx1100": "no 8-bit floats", "sm_80": "no fp8e4nv before sm_89"})
def matmul_float8(target):
    formats = {"gfx942": (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)}.get(
        target, (torch.float8_e4m3fn, torch.float8_e5m2)
    )
    for dtype in formats:
        a, b = randn(64, 64).to(dtype), randn(64, 64, seed=1).to(dtype)
        out = torch.zeros(64, 64)
        matmul(a, b, out, BK=64)
        yield f"{dtype}", out, a.double() @ b.double(), 1e-3


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    base = tl.program_id(1) * S * D
    q = tl.load(q_ptr + base + rm[:, None] * D + rd[None, :])
    m = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        rn = start + tl.arange(0, BN)
        k = tl.load(k_ptr + base + rn[None, :] * D + rd[:, None])
        scores = tl.dot(q, k) * scale
        scores = tl.where(rm[:, None] >= rn[None, :], scores, -float("inf"))
        new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - new[:, None])
        alpha = tl.exp2(m - new)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr + base + rn[:, None] * D + rd[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = new
    tl.store(out_ptr + base + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(out_ptr.dtype.element_ty))


@case()
def flash_attention(target):
    H, S, D = 2, 128, 64
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = (randn(H, S, D, dtype=dtype, seed=s) for s in range(3))
        out = torch.zeros(H, S, D, dtype=torch.float32)
        attention_kernel[(S // 64, H)](q, k, v, out, S, 1.4426950408889634 / 8, D=D, BM=64, BN=32)
        want = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
        yield f"{dtype}", out, want, 2e-2 if dtype == torch.bfloat16 else 4e-3


@triton.jit
def fused_kernel(x_ptr, w_ptr, b_ptr, out_ptr, M, K, N: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.arange(0, N)
    acc = tl.zeros((BM, N), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None], other=0.0)
        acc += tl.dot(x, tl.load(w_ptr + rk[:, None] * N + rn[None, :]))
    acc += tl.load(b_ptr + rn)[None, :]
    gelu = 0.5 * acc * (1 + tl.erf(acc * 0.7071067811865476))
    tl.store(out_ptr + rm[:, None] * N + rn[None, :], gelu.to(tl.float16), mask=(rm < M)[:, None])


@case()
def linear_with_gelu(target):
    M, K, N = 50, 128, 64
    x, w, b = randn(M, K, dtype=torch.float16), randn(K, N, dtype=torch.float16, seed=1) * 0.1, randn(N, seed=2)
    out = torch.zeros(M, N, dtype=torch.float16)
    fused_kernel[(2,)](x, w.half(), b, out, M, K, N=N, BM=32, BK=32)
    want = torch.nn.functional.gelu(x.double() @ w.half().double() + b.double())
    yield "out", out, want, 2e-3


@triton.jit
def split_k_kernel(a_ptr, b_ptr, c_ptr, K, N: tl.constexpr, BK: tl.constexpr):
    r = tl.arange(0, N)
    rk = tl.program_id(0) * BK + tl.arange(0, BK)
    a = tl.load(a_ptr + r[:, None] * K + rk[None, :])
    b = tl.load(b_ptr + rk[:, None] * N + r[None, :])
    tl.atomic_add(c_ptr + r[:, None] * N + r[None, :], tl.dot(a, b))


@case()
def split_k(target):
    a, b, c = randn(32, 256, dtype=torch.float16), randn(256, 32, dtype=torch.float16, seed=1), torch.zeros(32, 32)
    split_k_kernel[(4,)](a, b, c, 256, N=32, BK=64)
    yield "out", c, a.double() @ b.double(), 1e-4


@triton.jit
def descriptor_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BK, BN])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    at_m, at_n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([at_m, k]), b.load([k, at_n]), acc)
    c.store([at_m, at_n], acc.to(tl.float16))


@case()
def tensor_descriptors(target):
    M, N, K = 96, 80, 64
    a, b = randn(M, K, dtype=torch.float16), randn(K, N, dtype=torch.float16, seed=1)
    c = torch.zeros(M, N, dtype=torch.float16)
    descriptor_kernel[(3, 3)](a, b, c, M, N, K, BM=32, BN=32, BK=32)
    yield "out", c, a.double() @ b.double(), 2e-3
