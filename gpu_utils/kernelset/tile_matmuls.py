"""Tile programs with matrix products, for an SM, a CU and an AI core.

What a GPU calls shared memory and a fragment is L1 and L0C on an AI core, whose cube core works on nothing else.
"""

# mypy: ignore-errors
# T.prim_func reads what it decorates as a program of its own: annotations are tensors there

import torch

from gpu_utils.kernelset.tile_case import TileCase, tile_case

THREADS = 128


def gemm(T, vendor, M, N, K, BM, BN, BK, dtype):
    """C = A Bᵀ: A is [M, K], B is [N, K], C is [M, N] in float32."""
    ascend = vendor == "ascend"
    stage = T.alloc_l1 if ascend else T.alloc_shared
    accumulator = T.alloc_l0c if ascend else T.alloc_fragment
    blocks = (M // BM) * (N // BN)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(blocks) if ascend else T.Kernel(blocks, threads=THREADS) as block:
            m = block // (N // BN) * BM
            n = block % (N // BN) * BN
            A_tile = stage((BM, BK), dtype)
            B_tile = stage((BN, BK), dtype)
            total = accumulator((BM, BN), "float32")
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(A[m, k * BK], A_tile)
                T.copy(B[n, k * BK], B_tile)
                T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=(k == 0))
            T.copy(total, C[m, n])

    return main


def gemm_nn(T, vendor, M, N, K, BM, BN, BK, dtype):
    """C = A B: A is [M, K], B is [K, N], C is [M, N] in float32."""
    ascend = vendor == "ascend"
    stage = T.alloc_l1 if ascend else T.alloc_shared
    accumulator = T.alloc_l0c if ascend else T.alloc_fragment
    blocks = (M // BM) * (N // BN)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(blocks) if ascend else T.Kernel(blocks, threads=THREADS) as block:
            m = block // (N // BN) * BM
            n = block % (N // BN) * BN
            A_tile = stage((BM, BK), dtype)
            B_tile = stage((BK, BN), dtype)
            total = accumulator((BM, BN), "float32")
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(A[m, k * BK], A_tile)
                T.copy(B[k * BK, n], B_tile)
                T.gemm(A_tile, B_tile, total, clear_accum=(k == 0))
            T.copy(total, C[m, n])

    return main


def gemm_bias_relu(T, vendor, M, N, K, BM, BN, BK, dtype):
    """C = ReLU(A Bᵀ + bias): the sums go from the matrix unit to the vector unit without a way through memory."""
    blocks = (M // BM) * (N // BN)
    if vendor == "ascend":

        @T.prim_func
        def main(
            A: T.Tensor((M, K), dtype),
            B: T.Tensor((N, K), dtype),
            bias: T.Tensor((N,), "float32"),
            C: T.Tensor((M, N), "float32"),
        ):
            with T.Kernel(blocks) as block:
                m = block // (N // BN) * BM
                n = block % (N // BN) * BN
                A_tile = T.alloc_l1((BM, BK), dtype)
                B_tile = T.alloc_l1((BN, BK), dtype)
                total = T.alloc_l0c((BM, BN), "float32")
                half = T.alloc_shared((BM // 2, BN), "float32")
                row = T.alloc_shared((BN,), "float32")
                for k in T.Pipelined(K // BK, num_stages=2):
                    T.copy(A[m, k * BK], A_tile)
                    T.copy(B[n, k * BK], B_tile)
                    T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=(k == 0))
                T.copy(bias[n : n + BN], row)
                T.dual_copy(total, half)
                with T.SimtVF(threads=THREADS):
                    for i, j in T.Parallel(BM // 2, BN):
                        half[i, j] = T.max(half[i, j] + row[j], 0)
                T.dual_copy(half, C[m : m + BM, n : n + BN])

        return main

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        bias: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(blocks, threads=THREADS) as block:
            m = block // (N // BN) * BM
            n = block % (N // BN) * BN
            A_tile = T.alloc_shared((BM, BK), dtype)
            B_tile = T.alloc_shared((BN, BK), dtype)
            total = T.alloc_fragment((BM, BN), "float32")
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(A[m, k * BK], A_tile)
                T.copy(B[n, k * BK], B_tile)
                T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=(k == 0))
            for i, j in T.Parallel(BM, BN):
                total[i, j] = T.max(total[i, j] + bias[n + j], 0)
            T.copy(total, C[m, n])

    return main


def gemm_batched(T, vendor, G, M, N, K, BM, BN, BK, dtype):
    """C[g] = A[g] B[g]ᵀ for each of G pairs: A is [G, M, K], B is [G, N, K], C is [G, M, N] in float32."""
    ascend = vendor == "ascend"
    stage = T.alloc_l1 if ascend else T.alloc_shared
    accumulator = T.alloc_l0c if ascend else T.alloc_fragment
    tiles = (M // BM) * (N // BN)

    @T.prim_func
    def main(
        A: T.Tensor((G, M, K), dtype),
        B: T.Tensor((G, N, K), dtype),
        C: T.Tensor((G, M, N), "float32"),
    ):
        with T.Kernel(G * tiles) if ascend else T.Kernel(G * tiles, threads=THREADS) as block:
            g = block // tiles
            m = block % tiles // (N // BN) * BM
            n = block % (N // BN) * BN
            A_tile = stage((BM, BK), dtype)
            B_tile = stage((BN, BK), dtype)
            total = accumulator((BM, BN), "float32")
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(A[g, m, k * BK], A_tile)
                T.copy(B[g, n, k * BK], B_tile)
                T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=(k == 0))
            T.copy(total, C[g, m, n])

    return main


def gemm_split_k(T, vendor, S, M, N, K, BM, BN, BK, dtype):
    """C[s] is the part of A Bᵀ over the s-th of S equal pieces of K; their sum is the product. C is [S, M, N]."""
    ascend = vendor == "ascend"
    stage = T.alloc_l1 if ascend else T.alloc_shared
    accumulator = T.alloc_l0c if ascend else T.alloc_fragment
    tiles = (M // BM) * (N // BN)
    piece = K // S

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((S, M, N), "float32"),
    ):
        with T.Kernel(S * tiles) if ascend else T.Kernel(S * tiles, threads=THREADS) as block:
            s = block // tiles
            m = block % tiles // (N // BN) * BM
            n = block % (N // BN) * BN
            A_tile = stage((BM, BK), dtype)
            B_tile = stage((BN, BK), dtype)
            total = accumulator((BM, BN), "float32")
            for k in T.Pipelined(piece // BK, num_stages=2):
                T.copy(A[m, s * piece + k * BK], A_tile)
                T.copy(B[n, s * piece + k * BK], B_tile)
                T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=(k == 0))
            T.copy(total, C[s, m, n])

    return main


def _pair(M, N, K, dtype, turned):
    def inputs(generator):
        a = torch.randn(M, K, generator=generator)
        b = torch.randn(N, K, generator=generator) if turned else torch.randn(K, N, generator=generator)
        return [a.to(dtype), b.to(dtype)]

    return inputs


_TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
_TABLE = (
    # name, program, M, N, K, BM, BN, BK, dtype, B by rows of N
    ("gemm, fp16", gemm, 128, 192, 160, 64, 64, 32, "float16", True),
    ("gemm, bf16", gemm, 192, 128, 128, 64, 128, 64, "bfloat16", True),
    ("gemm, fp32", gemm, 64, 128, 96, 64, 64, 32, "float32", True),
    ("gemm nn, fp16", gemm_nn, 128, 128, 96, 64, 64, 32, "float16", False),
)
for _name, _program, _M, _N, _K, _BM, _BN, _BK, _dtype, _turned in _TABLE:
    tile_case(
        TileCase(
            name=_name,
            program=_program,
            sizes={"M": _M, "N": _N, "K": _K, "BM": _BM, "BN": _BN, "BK": _BK, "dtype": _dtype},
            inputs=_pair(_M, _N, _K, _TYPES[_dtype], _turned),
            outputs=(((_M, _N), torch.float32),),
            expected=(
                (lambda a, b: [a.double() @ b.double().T]) if _turned else (lambda a, b: [a.double() @ b.double()])
            ),
            terms=_K,
            refused={} if _turned else {"ascend": "only supports trans_A=False, trans_B=True"},
            # on NVIDIA a product of float32 goes through TF32
            magnitude=1.0 if _dtype != "float32" else 2.0**13,
        )
    )
tile_case(
    TileCase(
        name="gemm with bias and ReLU, fp16",
        program=gemm_bias_relu,
        sizes={"M": 128, "N": 128, "K": 96, "BM": 64, "BN": 64, "BK": 32, "dtype": "float16"},
        inputs=lambda generator: [
            *_pair(128, 128, 96, torch.float16, True)(generator),
            torch.randn(128, generator=generator),
        ],
        outputs=(((128, 128), torch.float32),),
        expected=lambda a, b, bias: [(a.double() @ b.double().T + bias.double()).relu()],
        terms=97,
    )
)
tile_case(
    TileCase(
        name="gemm, batched, fp16",
        program=gemm_batched,
        sizes={"G": 3, "M": 64, "N": 128, "K": 96, "BM": 64, "BN": 64, "BK": 32, "dtype": "float16"},
        inputs=lambda generator: [
            torch.randn(3, rows, 96, generator=generator).to(torch.float16) for rows in (64, 128)
        ],
        outputs=(((3, 64, 128), torch.float32),),
        expected=lambda a, b: [a.double() @ b.double().mT],
        terms=96,
    )
)
tile_case(
    TileCase(
        name="gemm, split along K, fp16",
        program=gemm_split_k,
        sizes={"S": 4, "M": 64, "N": 64, "K": 256, "BM": 64, "BN": 64, "BK": 32, "dtype": "float16"},
        inputs=_pair(64, 64, 256, torch.float16, True),
        outputs=(((4, 64, 64), torch.float32),),
        expected=lambda a, b: [
            torch.stack([x @ y.T for x, y in zip(a.double().chunk(4, 1), b.double().chunk(4, 1), strict=True)])
        ],
        terms=64,
    )
)
