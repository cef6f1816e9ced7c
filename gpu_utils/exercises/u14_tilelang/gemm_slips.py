"""14.gemm's wrong programs: one program for three vendors, with one thing changed in each.

No postponed annotations here: TileLang evaluates those of a kernel where its body is, which may not name M or K.
"""

# mypy: ignore-errors

from collections.abc import Callable
from typing import Any

Program = Callable[..., Any]


def grid(T: Any, vendor: str, blocks: int) -> Any:
    """So many blocks of 128 threads, or AI cores."""
    return T.Kernel(blocks) if vendor == "ascend" else T.Kernel(blocks, threads=128)


def share(tiles: int, core: Any, cores: int) -> Any:
    """How many of the tiles core, core + cores, core + 2 cores, ... there are."""
    return (tiles - core + cores - 1) // cores


def variant(
    *,
    row: Callable[..., Any] = lambda t, rows, columns: t // columns,
    column: Callable[..., Any] = lambda t, rows, columns: t % columns,
    steps: Callable[..., Any] = lambda K, BK: K // BK,
    k_at: Callable[..., Any] = lambda k, BK: k * BK,
    clear: Callable[..., Any] = lambda k: k == 0,
    out_at: Callable[..., Any] = lambda m, n: (m, n),
    operands: str = "alloc_l1",
    sums: str = "float32",
    transpose: bool = True,
    b_is_k_by_n: bool = False,
    tile: tuple[int, int, int] | None = None,
    rounds: Callable[..., Any] = share,
    dealt: Callable[..., Any] = lambda core, i, cores: core + i * cores,
    blocks: Callable[..., Any] = lambda tiles, cores: cores,
) -> Program:
    """A program that is right where nothing is changed.

    row, column  the tile's place among the tiles, from the number of the block and the numbers of tiles
    steps, k_at, clear, out_at  how many steps, where in K each begins, when sums begin at 0, where the tile is stored
    operands     where an AI core keeps the tiles of a and b; sums: dtype of the accumulator
    tile         a tile of its own, whatever is asked for
    rounds, dealt, blocks  how many tiles a core makes, which its i-th is, and how many blocks are launched
    """

    def gemm(
        T: Any, vendor: str, M: int, N: int, K: int, BM: int, BN: int, BK: int, dtype: str, cores: int
    ) -> Any:  # the names of the exercise
        npu = vendor == "ascend"
        BM, BN, BK = tile or (BM, BN, BK)
        rows, columns = M // BM, N // BN
        place = getattr(T, operands) if npu else T.alloc_shared
        of_b = (BK, BN) if b_is_k_by_n else (BN, BK)

        @T.prim_func
        def main(a: T.Tensor((M, K), dtype), b: T.Tensor((N, K), dtype), c: T.Tensor((M, N), "float32")):
            with grid(T, vendor, blocks(rows * columns, cores)) as core:
                a_tile = place((BM, BK), dtype)
                b_tile = place(of_b, dtype)
                acc = (T.alloc_l0c if npu else T.alloc_fragment)((BM, BN), sums)
                for i in T.serial(rounds(rows * columns, core, cores)):
                    t = dealt(core, i, cores)
                    m = row(t, rows, columns) * BM
                    n = column(t, rows, columns) * BN
                    for k in T.Pipelined(steps(K, BK), num_stages=2):
                        T.copy(a[m, k_at(k, BK)], a_tile)
                        if b_is_k_by_n:
                            T.copy(b[k_at(k, BK), n], b_tile)
                        else:
                            T.copy(b[n, k_at(k, BK)], b_tile)
                        T.gemm(a_tile, b_tile, acc, transpose_B=transpose, clear_accum=clear(k))
                    T.copy(acc, c[out_at(m, n)[0], out_at(m, n)[1]])

        return main

    return gemm


def same_text_everywhere(
    T: Any, vendor: str, M: int, N: int, K: int, BM: int, BN: int, BK: int, dtype: str, cores: int
) -> Any:
    """The program of a GPU, on an AI core too."""
    return variant()(T, "nvidia", M=M, N=N, K=K, BM=BM, BN=BN, BK=BK, dtype=dtype, cores=cores)


def no_matrix_unit(
    T: Any, vendor: str, M: int, N: int, K: int, BM: int, BN: int, BK: int, dtype: str, cores: int
) -> Any:
    """Every lane multiplies and adds for itself, on GPUs."""
    if vendor == "ascend":
        return variant()(T, vendor, M=M, N=N, K=K, BM=BM, BN=BN, BK=BK, dtype=dtype, cores=cores)

    @T.prim_func
    def main(a: T.Tensor((M, K), dtype), b: T.Tensor((N, K), dtype), c: T.Tensor((M, N), "float32")):
        with T.Kernel(cores, threads=128) as core:
            a_tile = T.alloc_shared((BM, BK), dtype)
            b_tile = T.alloc_shared((BN, BK), dtype)
            acc = T.alloc_fragment((BM, BN), "float32")
            for t in T.serial(share((M // BM) * (N // BN), core, cores)):
                m = (core + t * cores) // (N // BN) * BM
                n = (core + t * cores) % (N // BN) * BN
                T.clear(acc)
                for k in T.Pipelined(K // BK, num_stages=2):
                    T.copy(a[m, k * BK], a_tile)
                    T.copy(b[n, k * BK], b_tile)
                    for i, j in T.Parallel(BM, BN):
                        for p in T.serial(BK):
                            acc[i, j] += T.cast(a_tile[i, p], "float32") * T.cast(b_tile[j, p], "float32")
                T.copy(acc, c[m, n])

    return main


def filled(value: float) -> Program:
    """A program that stores one number everywhere."""

    def gemm(T: Any, vendor: str, M: int, N: int, K: int, BM: int, BN: int, BK: int, dtype: str, cores: int) -> Any:
        npu = vendor == "ascend"

        @T.prim_func
        def main(a: T.Tensor((M, K), dtype), b: T.Tensor((N, K), dtype), c: T.Tensor((M, N), "float32")):
            with grid(T, vendor, cores) as core:
                tile = (T.alloc_shared if npu else T.alloc_fragment)((BM, BN), "float32")
                if npu:
                    with T.SimtVF(threads=128):
                        for i, j in T.Parallel(BM, BN):
                            tile[i, j] = value
                else:
                    T.fill(tile, value)
                for r in T.serial(share((M // BM) * (N // BN), core, cores)):
                    t = core + r * cores
                    T.copy(tile, c[t // (N // BN) * BM, t % (N // BN) * BN])

        return main

    return gemm


def the_input(T: Any, vendor: str, M: int, N: int, K: int, BM: int, BN: int, BK: int, dtype: str, cores: int) -> Any:
    """Copies a corner of a into every tile of c."""
    npu = vendor == "ascend"

    @T.macro
    def widen(given: Any, tile: Any) -> None:
        for i, j in T.Parallel(BM, BN):
            tile[i, j] = T.cast(given[i, j % BK], "float32")

    @T.prim_func
    def main(a: T.Tensor((M, K), dtype), b: T.Tensor((N, K), dtype), c: T.Tensor((M, N), "float32")):
        with grid(T, vendor, cores) as core:
            given = T.alloc_shared((BM, BK), dtype)
            tile = T.alloc_shared((BM, BN), "float32")
            for r in T.serial(share((M // BM) * (N // BN), core, cores)):
                t = core + r * cores
                T.copy(a[t // (N // BN) * BM, 0], given)
                if npu:
                    with T.SimtVF(threads=128):
                        widen(given, tile)
                else:
                    widen(given, tile)
                T.copy(tile, c[t // (N // BN) * BM, t % (N // BN) * BN])

    return main
