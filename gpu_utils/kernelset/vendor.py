"""What a vendor's backend offers beyond the language: inline assembly, tensor descriptors."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gpu_utils.kernelset.case import AMD, NVIDIA, TARGETS, Run, case


@triton.jit
def inline_ptx_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    z = tl.inline_asm_elementwise(
        """
        {
            .reg .b32 t;
            shl.b32 t, $1, 3;
            lop3.b32 $0, t, $1, $2, 0x96;
        }
        """,
        "=r,r,r",
        [x, y],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(out_ptr + i, z)


@case(NVIDIA, "the assembly is PTX")
def inline_ptx(run: Run) -> None:
    programs = run.size(2, 60)
    x, y = (run.integers(-(2**31), 2**31, programs * 256) for _ in range(2))
    out = torch.empty_like(x)
    run.launch(inline_ptx_kernel, (programs,), x, y, out, BLOCK=256)
    run.equal("x << 3 ^ x ^ y", out, (x << 3) ^ x ^ y)


@triton.jit
def inline_amdgcn_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    z = tl.inline_asm_elementwise(
        """
        v_lshlrev_b32 $0, 3, $1
        v_xor_b32 $0, $0, $2
        """,
        "=&v,v,v",
        [x, y],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(out_ptr + i, z)


@case(AMD, "the assembly is AMDGCN")
def inline_amdgcn(run: Run) -> None:
    programs = run.size(2, 60)
    x, y = (run.integers(-(2**31), 2**31, programs * 256) for _ in range(2))
    out = torch.empty_like(x)
    run.launch(inline_amdgcn_kernel, (programs,), x, y, out, BLOCK=256)
    run.equal("x << 3 ^ y", out, (x << 3) ^ y)


@triton.jit
def packed_ptx_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    low = tl.inline_asm_elementwise(
        "and.b32 $0, $1, 0x0F0F0F0F;", "=r,r", [tl.load(x_ptr + i)], dtype=tl.int8, is_pure=True, pack=4
    )
    tl.store(out_ptr + i, low)


@case(NVIDIA, "the assembly is PTX")
def inline_ptx_on_packed_bytes(run: Run) -> None:
    programs = run.size(2, 60)
    x = run.integers(-128, 128, programs * 512, dtype=torch.int8)
    out = torch.empty_like(x)
    run.launch(packed_ptx_kernel, (programs,), x, out, BLOCK=512)
    run.equal("low nibbles", out, x & 15)


@triton.jit
def descriptor_matmul_kernel(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(tl.float16))


CRASHES = (
    "for gfx1250 Triton 3.7.1 refuses to pipeline loads through descriptors, and of descriptors that the host makes it "
    "crashes where it need not pipeline (a segmentation fault in make_ttgir)"
)


@case([target for target in TARGETS if target != "gfx1250"], CRASHES)
def matmul_with_tensor_descriptors(run: Run) -> None:
    M, N, K = run.size(72, 512), run.size(80, 512), run.size(88, 256)
    a, b = run.normal(M, K, dtype=torch.float16), run.normal(K, N, dtype=torch.float16)
    c = torch.empty(M, N, dtype=torch.float16)
    boxes = [TensorDescriptor.from_tensor(t, box) for t, box in ((a, [64, 32]), (b, [32, 64]), (c, [64, 64]))]
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    run.launch(descriptor_matmul_kernel, grid, *boxes, K, BM=64, BN=64, BK=32)
    run.close("c", c, a.double() @ b.double(), k=K)


@triton.jit
def tile_mover_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BK, BN])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(tl.float16))


@case(AMD, "on NVIDIA descriptors made in a kernel need memory that the host allots")
def matmul_with_descriptors_made_in_the_kernel(run: Run) -> None:
    M, N, K = run.size(72, 512), run.size(80, 512), run.size(88, 256)
    a, b = run.normal(M, K, dtype=torch.float16), run.normal(K, N, dtype=torch.float16)
    c = torch.empty(M, N, dtype=torch.float16)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    run.launch(tile_mover_kernel, grid, a, b, c, M, N, K, BM=64, BN=64, BK=32, num_stages=1)
    run.close("c", c, a.double() @ b.double(), k=K)
