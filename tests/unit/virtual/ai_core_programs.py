"""Tile programs for tests of the virtual AI core: two cores that hand over, buffers in turn, tiles that are cut off."""

# mypy: ignore-errors


def persistent_relu(T, vendor, M, N, K, BM, BN, BK, blocks, dtype):
    """ReLU(A Bᵀ) with fewer blocks than tiles: the vector cores work while the cube core goes on."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(blocks) as block:
            A_tile = T.alloc_l1((BM, BK), dtype)
            B_tile = T.alloc_l1((BN, BK), dtype)
            total = T.alloc_l0c((BM, BN), "float32")
            half = T.alloc_shared((BM // 2, BN), "float32")
            for tile in T.Persistent([M // BM * (N // BN)], blocks, block):
                m = tile // (N // BN) * BM
                n = tile % (N // BN) * BN
                for k in T.Pipelined(K // BK, num_stages=2):
                    T.copy(A[m, k * BK], A_tile)
                    T.copy(B[n, k * BK], B_tile)
                    T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=(k == 0))
                T.dual_copy(total, half)
                with T.SimtVF(threads=128):
                    for i, j in T.Parallel(BM // 2, BN):
                        half[i, j] = T.max(half[i, j], 0)
                T.dual_copy(half, C[m : m + BM, n : n + BN])

    return main


def pipelined_exp(T, vendor, M, N, R, blocks):
    """y = exp(x), R rows after the other in two buffers."""
    steps = M // R // blocks

    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.Kernel(blocks) as block:
            tile = T.alloc_shared((R, N), "float32")
            out = T.alloc_shared((R, N), "float32")
            for step in T.Pipelined(steps, num_stages=2):
                T.copy(x[(block * steps + step) * R, 0], tile)
                with T.SimtVF(threads=128):
                    for i, j in T.Parallel(R, N):
                        out[i, j] = T.exp(tile[i, j])
                T.copy(out, y[(block * steps + step) * R, 0])

    return main


def stored_twice(T, vendor, n):
    """y = x, then y = z: two copies of one pipe to one place."""

    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), z: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1) as _:
            first = T.alloc_shared((n,), "float32")
            second = T.alloc_shared((n,), "float32")
            T.copy(x, first)
            T.copy(z, second)
            T.copy(first, y)
            T.copy(second, y)

    return main


def cut_off_gemm(T, vendor, M, N, K, BM, BN, BK):
    """C = A Bᵀ where no size is a multiple of its tile."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, BM) * T.ceildiv(N, BN)) as block:
            A_tile = T.alloc_l1((BM, BK), "float16")
            B_tile = T.alloc_l1((BN, BK), "float16")
            total = T.alloc_l0c((BM, BN), "float32")
            m = block // T.ceildiv(N, BN) * BM
            n = block % T.ceildiv(N, BN) * BN
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                T.copy(A[m, k * BK], A_tile)
                T.copy(B[n, k * BK], B_tile)
                T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=(k == 0))
            T.copy(total, C[m, n])

    return main


def cut_off_rows(T, vendor, M, N, R, C):
    """y = 2 x in tiles of R rows and C columns, the last of which are cut off."""
    across = -(-N // C)

    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.Kernel(-(-M // R) * across) as block:
            tile = T.alloc_shared((R, C), "float32")
            T.copy(x[block // across * R, block % across * C], tile)
            with T.SimtVF(threads=64):
                for i, j in T.Parallel(R, C):
                    tile[i, j] = tile[i, j] * 2
            T.copy(tile, y[block // across * R, block % across * C])

    return main
