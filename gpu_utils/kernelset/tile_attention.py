"""Attention as a tile program: the scores stay on chip, and each row's softmax is put right as keys come.

On an AI core the two products are the cube core's and the softmax is the vector cores', half of a tile's rows each:
scores go from L0C to the unified buffer, weights from there to L1.
"""

# mypy: ignore-errors
# T.prim_func reads what it decorates as a program of its own: annotations are tensors there

import torch

from gpu_utils.kernelset.tile_case import TileCase, tile_case

THREADS = 128


def attention(T, vendor, S, D, BM, BN, dtype):
    """out = softmax(Q Kᵀ / √D) V: Q and K are [S, D], V is turned, [D, S], out is [S, D] in float32."""
    return (_on_cores if vendor == "ascend" else _on_threads)(T, S, D, BM, BN, dtype)


def _on_cores(T, S, D, BM, BN, dtype):
    half = BM // 2

    @T.prim_func
    def main(
        Q: T.Tensor((S, D), dtype),
        K: T.Tensor((S, D), dtype),
        V: T.Tensor((D, S), dtype),
        out: T.Tensor((S, D), "float32"),
    ):
        with T.Kernel(S // BM) as block:
            queries = T.alloc_l1((BM, D), dtype)
            keys = T.alloc_l1((BN, D), dtype)
            values = T.alloc_l1((D, BN), dtype)
            weights_l1 = T.alloc_l1((BM, BN), dtype)
            scores_l0 = T.alloc_l0c((BM, BN), "float32")
            part_l0 = T.alloc_l0c((BM, D), "float32")
            scores = T.alloc_shared((half, BN), "float32")
            weights = T.alloc_shared((half, BN), dtype)
            part = T.alloc_shared((half, D), "float32")
            total = T.alloc_shared((half, D), "float32")
            top = T.alloc_shared((half,), "float32")
            mass = T.alloc_shared((half,), "float32")
            shrink = T.alloc_shared((half,), "float32")
            T.copy(Q[block * BM, 0], queries)
            with T.SimtVF(threads=THREADS):
                for i in T.Parallel(half):
                    top[i] = -1e30
                    mass[i] = 0.0
                for i, j in T.Parallel(half, D):
                    total[i, j] = 0.0
            for step in range(S // BN):
                T.copy(K[step * BN, 0], keys)
                T.gemm(queries, keys, scores_l0, transpose_B=True, clear_accum=True)
                T.dual_copy(scores_l0, scores)
                with T.SimtVF(threads=THREADS):
                    for i in T.Parallel(half):
                        highest = T.alloc_var("float32")
                        sum_ = T.alloc_var("float32")
                        highest = top[i]
                        for j in range(BN):
                            highest = T.max(highest, scores[i, j] * D**-0.5)
                        sum_ = 0.0
                        for j in range(BN):
                            scores[i, j] = T.exp(scores[i, j] * D**-0.5 - highest)
                            sum_ = sum_ + scores[i, j]
                        shrink[i] = T.exp(top[i] - highest)
                        mass[i] = mass[i] * shrink[i] + sum_
                        top[i] = highest
                    for i, j in T.Parallel(half, BN):
                        weights[i, j] = T.cast(scores[i, j], dtype)
                T.dual_copy(weights, weights_l1)
                T.copy(V[0, step * BN], values)
                T.gemm(weights_l1, values, part_l0, transpose_B=True, clear_accum=True)
                T.dual_copy(part_l0, part)
                with T.SimtVF(threads=THREADS):
                    for i, j in T.Parallel(half, D):
                        total[i, j] = total[i, j] * shrink[i] + part[i, j]
            with T.SimtVF(threads=THREADS):
                for i, j in T.Parallel(half, D):
                    total[i, j] = total[i, j] / mass[i]
            T.dual_copy(total, out[block * BM : block * BM + BM, 0:D])

    return main


def _on_threads(T, S, D, BM, BN, dtype):
    @T.prim_func
    def main(
        Q: T.Tensor((S, D), dtype),
        K: T.Tensor((S, D), dtype),
        V: T.Tensor((D, S), dtype),
        out: T.Tensor((S, D), "float32"),
    ):
        with T.Kernel(S // BM, threads=THREADS) as block:
            queries = T.alloc_shared((BM, D), dtype)
            keys = T.alloc_shared((BN, D), dtype)
            values = T.alloc_shared((D, BN), dtype)
            scores = T.alloc_fragment((BM, BN), "float32")
            weights = T.alloc_fragment((BM, BN), dtype)
            total = T.alloc_fragment((BM, D), "float32")
            top = T.alloc_fragment((BM,), "float32")
            before = T.alloc_fragment((BM,), "float32")
            mass = T.alloc_fragment((BM,), "float32")
            sums = T.alloc_fragment((BM,), "float32")
            T.copy(Q[block * BM, 0], queries)
            T.fill(total, 0)
            T.fill(mass, 0)
            T.fill(top, -1e30)
            for step in T.Pipelined(S // BN, num_stages=1):
                T.copy(K[step * BN, 0], keys)
                T.clear(scores)
                T.gemm(queries, keys, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(BM, BN):
                    scores[i, j] = scores[i, j] * D**-0.5
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i, j in T.Parallel(BM, BN):
                    scores[i, j] = T.exp(scores[i, j] - top[i])
                T.reduce_sum(scores, sums, dim=1)
                for i in T.Parallel(BM):
                    before[i] = T.exp(before[i] - top[i])
                    mass[i] = mass[i] * before[i] + sums[i]
                for i, j in T.Parallel(BM, D):
                    total[i, j] = total[i, j] * before[i]
                T.copy(scores, weights)
                T.copy(V[0, step * BN], values)
                T.gemm(weights, values, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(BM, D):
                total[i, j] = total[i, j] / mass[i]
            T.copy(total, out[block * BM, 0])

    return main


def _inputs(generator):
    q, k = (torch.randn(128, 64, generator=generator).half() for _ in range(2))
    return [q, k, torch.randn(64, 128, generator=generator).half()]


def _expected(q, k, v):
    return [(q.double() @ k.double().T / 8).softmax(1) @ v.double().T]


CASE = tile_case(
    TileCase(
        name="attention, fp16",
        program=attention,
        sizes={"S": 128, "D": 64, "BM": 64, "BN": 32, "dtype": "float16"},
        inputs=_inputs,
        outputs=(((128, 64), torch.float32),),
        expected=_expected,
        terms=128,
        magnitude=2**13 / 512,  # weights of about 1 / 128, rounded to fp16: 2¹³ times the accumulator's step
    )
)
