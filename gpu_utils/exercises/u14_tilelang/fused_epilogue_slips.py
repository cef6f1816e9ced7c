"""14.fused_epilogue's wrong programs: the product's loop is right in all of them, and the epilogue is not.

No postponed annotations here: TileLang evaluates those of a kernel where its body is, which may not name K.
"""

# mypy: ignore-errors

from collections.abc import Callable
from typing import Any

from gpu_utils.exercises.u14_tilelang.gemm_slips import grid

Program = Callable[..., Any]
Element = Callable[[Any, Any, Any, Any], Any]  # (T, sum, bias of its column, scale) -> result


def silu(T: Any, v: Any) -> Any:
    return v / (1.0 + T.exp(-v))


def gelu(T: Any, v: Any) -> Any:
    """With tanh, as v times a sigmoid."""
    return v / (1.0 + T.exp(-1.5957691216057308 * (v + 0.044715 * v * v * v)))


def right(T: Any, total: Any, bias: Any, scale: Any) -> Any:
    return silu(T, scale * total + bias)


def variant(
    element: Element = right,
    *,
    of_row: bool = False,
    through_memory: bool = False,
    halves: str = "dual_copy",
) -> Program:
    """A program that is right where nothing is changed.

    element  what becomes of one sum
    of_row   whether bias is taken by row
    through_memory  whether the sums go to out first and are read from there
    halves   how the two vector cores share a tile: "dual_copy"; "copy" stores both halves in one place; "whole" gives
             the whole tile to a vector core
    """

    def fused_epilogue(T: Any, vendor: str, M: int, N: int, K: int, BM: int, BN: int, BK: int, scale: float) -> Any:
        npu = vendor == "ascend"
        rows = BM // 2 if npu and halves != "whole" else BM
        span = rows if of_row else BN
        tile = T.alloc_l1 if npu else T.alloc_shared

        def of_tile(m: Any, n: Any) -> Any:
            return m if of_row else n

        @T.prim_func
        def main(
            a: T.Tensor((M, K), "float16"),
            b: T.Tensor((N, K), "float16"),
            bias: T.Tensor((N,), "float32"),
            out: T.Tensor((M, N), "float16"),
        ):
            with grid(T, vendor, (M // BM) * (N // BN)) as t:
                a_tile = tile((BM, BK), "float16")
                b_tile = tile((BN, BK), "float16")
                acc = (T.alloc_l0c if npu else T.alloc_fragment)((BM, BN), "float32")
                sums = T.alloc_shared((rows, BN), "float32")
                shift = T.alloc_shared((span,), "float32")
                done = T.alloc_shared((rows, BN), "float16")
                m = t // (N // BN) * BM
                n = t % (N // BN) * BN
                for k in T.Pipelined(K // BK, num_stages=2):
                    T.copy(a[m, k * BK], a_tile)
                    T.copy(b[n, k * BK], b_tile)
                    T.gemm(a_tile, b_tile, acc, transpose_B=True, clear_accum=(k == 0))
                T.copy(bias[of_tile(m, n)], shift)
                if through_memory:
                    T.copy(acc, out[m, n])
                if npu:
                    if through_memory:
                        T.dual_copy(out[m : m + BM, n : n + BN], done)
                    elif halves == "whole":
                        T.copy(acc, sums)
                    else:
                        T.dual_copy(acc, sums)
                    with T.SimtVF(threads=128):
                        for i, j in T.Parallel(rows, BN):
                            if through_memory:
                                sums[i, j] = T.cast(done[i, j], "float32")
                            done[i, j] = element(T, sums[i, j], shift[i if of_row else j], scale)
                    if halves == "dual_copy":
                        T.dual_copy(done, out[m : m + BM, n : n + BN])
                    else:
                        T.copy(done, out[m : m + rows, n : n + BN])
                else:
                    if through_memory:
                        T.copy(out[m, n], done)
                        T.copy(done, acc)
                    for i, j in T.Parallel(rows, BN):
                        acc[i, j] = element(T, acc[i, j], shift[i if of_row else j], scale)
                    T.copy(acc, out[m, n])

        return main

    return fused_epilogue


ELEMENTS: dict[str, Element] = {
    "no_bias": lambda T, total, bias, scale: silu(T, scale * total),
    "no_scale": lambda T, total, bias, scale: silu(T, total + bias),
    "no_activation": lambda T, total, bias, scale: scale * total + bias,
    "bias_after": lambda T, total, bias, scale: silu(T, scale * total) + bias,
    "scaled_with_bias": lambda T, total, bias, scale: silu(T, scale * (total + bias)),
    "scaled_last": lambda T, total, bias, scale: scale * silu(T, total + bias),
    "relu": lambda T, total, bias, scale: T.max(scale * total + bias, 0.0),
    "gelu": lambda T, total, bias, scale: gelu(T, scale * total + bias),
    "only_the_sigmoid": lambda T, total, bias, scale: 1.0 / (1.0 + T.exp(-(scale * total + bias))),
    "wrong_sign": lambda T, total, bias, scale: (scale * total + bias) / (1.0 + T.exp(scale * total + bias)),
}
"""Name of a misconception -> what it makes of a sum."""


def storing(value: Callable[..., Any]) -> Program:
    """The right program, but for what is stored: (T, sum) -> a number."""
    return variant(lambda T, total, bias, scale: value(T, total))
