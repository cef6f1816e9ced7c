"""Tile programs for the GPUs: a product, softmax, layer norm, a sum of rows, attention. They import nothing."""


def gemm(T, vendor, M, N, K, BM, BN, BK, dtype="float16", threads=128):
    """c[M, N] = a[M, K] @ b[N, K].T, accumulated in float32."""

    @T.prim_func
    def main(a: T.Tensor((M, K), dtype), b: T.Tensor((N, K), dtype), c: T.Tensor((M, N), "float32")):
        with T.Kernel((M // BM) * (N // BN), threads=threads) as tile:
            a_shared = T.alloc_shared((BM, BK), dtype)
            b_shared = T.alloc_shared((BN, BK), dtype)
            total = T.alloc_fragment((BM, BN), "float32")
            m = tile // (N // BN) * BM
            n = tile % (N // BN) * BN
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(a[m, k * BK], a_shared)
                T.copy(b[n, k * BK], b_shared)
                T.gemm(a_shared, b_shared, total, transpose_B=True, clear_accum=(k == 0))
            T.copy(total, c[m, n])

    return main


def softmax(T, vendor, R, C, BR):
    """y[R, C] = softmax of the rows of x[R, C], both float32."""

    @T.prim_func
    def main(x: T.Tensor((R, C), "float32"), y: T.Tensor((R, C), "float32")):
        with T.Kernel(R // BR, threads=128) as tile:
            rows = T.alloc_fragment((BR, C), "float32")
            top = T.alloc_fragment((BR,), "float32")
            total = T.alloc_fragment((BR,), "float32")
            T.copy(x[tile * BR, 0], rows)
            T.reduce_max(rows, top, dim=1)
            for i, j in T.Parallel(BR, C):
                rows[i, j] = T.exp(rows[i, j] - top[i])
            T.reduce_sum(rows, total, dim=1)
            for i, j in T.Parallel(BR, C):
                rows[i, j] = rows[i, j] / total[i]
            T.copy(rows, y[tile * BR, 0])

    return main


def layernorm(T, vendor, R, C, BR):
    """y[R, C] = layer norm of the rows of x[R, C], times w[C]; float16, computed in float32."""

    @T.prim_func
    def main(x: T.Tensor((R, C), "float16"), w: T.Tensor((C,), "float16"), y: T.Tensor((R, C), "float16")):
        with T.Kernel(R // BR, threads=128) as tile:
            read = T.alloc_shared((BR, C), "float16")
            rows = T.alloc_fragment((BR, C), "float32")
            squares = T.alloc_fragment((BR, C), "float32")
            mean = T.alloc_fragment((BR,), "float32")
            spread = T.alloc_fragment((BR,), "float32")
            T.copy(x[tile * BR, 0], read)
            T.copy(read, rows)
            T.reduce_sum(rows, mean, dim=1)
            for i, j in T.Parallel(BR, C):
                rows[i, j] = rows[i, j] - mean[i] / C
            for i, j in T.Parallel(BR, C):
                squares[i, j] = rows[i, j] * rows[i, j]
            T.reduce_sum(squares, spread, dim=1)
            for i, j in T.Parallel(BR, C):
                rows[i, j] = rows[i, j] * T.rsqrt(spread[i] / C + 1e-5) * w[j]
            T.copy(rows, y[tile * BR, 0])

    return main


def row_sum(T, vendor, R, C, BR, threads):
    """y[R] = sums of the rows of x[R, C], both float32."""

    @T.prim_func
    def main(x: T.Tensor((R, C), "float32"), y: T.Tensor((R,), "float32")):
        with T.Kernel(R // BR, threads=threads) as tile:
            rows = T.alloc_fragment((BR, C), "float32")
            total = T.alloc_fragment((BR,), "float32")
            T.copy(x[tile * BR, 0], rows)
            T.reduce_sum(rows, total, dim=1)
            T.copy(total, y[tile * BR])

    return main


def attention(T, vendor, S, D, BM, BN):
    """o[S, D] = softmax(q k^T / sqrt(D)) v for one head: float16 in, float32 out, with the running maximum."""
    scale = 1.44269504 / D**0.5

    @T.prim_func
    def main(
        q: T.Tensor((S, D), "float16"),
        k: T.Tensor((S, D), "float16"),
        v: T.Tensor((S, D), "float16"),
        o: T.Tensor((S, D), "float32"),
    ):
        with T.Kernel(S // BM, threads=128) as tile:
            q_shared = T.alloc_shared((BM, D), "float16")
            k_shared = T.alloc_shared((BN, D), "float16")
            v_shared = T.alloc_shared((BN, D), "float16")
            scores = T.alloc_fragment((BM, BN), "float32")
            weights = T.alloc_fragment((BM, BN), "float16")
            out = T.alloc_fragment((BM, D), "float32")
            top = T.alloc_fragment((BM,), "float32")
            before = T.alloc_fragment((BM,), "float32")
            part = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.copy(q[tile * BM, 0], q_shared)
            T.clear(out)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for n in T.Pipelined(S // BN, num_stages=1):
                T.copy(k[n * BN, 0], k_shared)
                T.clear(scores)
                T.gemm(q_shared, k_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i, j in T.Parallel(BM, BN):
                    scores[i, j] = T.exp2((scores[i, j] - top[i]) * scale)
                for i, j in T.Parallel(BM, D):
                    out[i, j] = out[i, j] * T.exp2((before[i] - top[i]) * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * T.exp2((before[i] - top[i]) * scale) + part[i]
                T.copy(scores, weights)
                T.copy(v[n * BN, 0], v_shared)
                T.gemm(weights, v_shared, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(BM, D):
                out[i, j] = out[i, j] / total[i]
            T.copy(out, o[tile * BM, 0])

    return main
