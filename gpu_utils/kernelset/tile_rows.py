"""Tile programs over rows, for an SM, a CU and an AI core: elementwise, reductions, softmax, two norms, a cast.

Each is one function `program(T, vendor, **sizes)`. A block copies some rows on chip, works on them and copies the
result out. On a GPU its threads are those of the kernel; on an AI core a vector function has threads of its own, and
rows lie in the unified buffer.
"""

# mypy: ignore-errors
# T.prim_func reads what it decorates as a program of its own: annotations are tensors there

import torch

from gpu_utils.kernelset.tile_case import TileCase, tile_case

THREADS = 128


def _rows(T, vendor, M, N, R, dtypes, body):
    """A program that gives each block R rows: `body(tile, out)` makes the result from what was copied."""
    ascend = vendor == "ascend"
    *given, result = dtypes

    @T.prim_func
    def main(x: T.Tensor((M, N), given[0]), y: T.Tensor((M, N), result)):
        with T.Kernel(M // R) if ascend else T.Kernel(M // R, threads=THREADS) as block:
            tile = T.alloc_shared((R, N), given[0])
            out = T.alloc_shared((R, N), result)
            T.copy(x[block * R, 0], tile)
            if ascend:
                with T.SimtVF(threads=THREADS):
                    body(tile, out)
            else:
                body(tile, out)
            T.copy(out, y[block * R, 0])

    return main


def exponential(T, vendor, M, N, R, dtype):
    """y = exp(x), element by element."""

    @T.macro
    def body(tile, out):
        for i, j in T.Parallel(R, N):
            out[i, j] = T.exp(tile[i, j])

    return _rows(T, vendor, M, N, R, (dtype, dtype), body)


def cast(T, vendor, M, N, R, dtype, result):
    """y = x in another type."""

    @T.macro
    def body(tile, out):
        for i, j in T.Parallel(R, N):
            out[i, j] = T.cast(tile[i, j], result)

    return _rows(T, vendor, M, N, R, (dtype, result), body)


def gelu(T, vendor, M, N, R, dtype):
    """y = GELU(x) as GPT-2 has it: 0.5 x (1 + tanh u) is x / (1 + exp(-2 u)), and exp is there everywhere."""

    @T.macro
    def body(tile, out):
        for i, j in T.Parallel(R, N):
            cube = tile[i, j] * tile[i, j] * tile[i, j]
            out[i, j] = tile[i, j] / (1.0 + T.exp(-1.5957691216 * (tile[i, j] + 0.044715 * cube)))

    return _rows(T, vendor, M, N, R, (dtype, dtype), body)


def softmax(T, vendor, M, N, R, dtype):
    """Each row's exponentials over their sum, from the row's largest element down."""

    @T.macro
    def body(tile, out):
        row = T.alloc_fragment((R, N), "float32")
        top = T.alloc_fragment((R,), "float32")
        total = T.alloc_fragment((R,), "float32")
        for i, j in T.Parallel(R, N):
            row[i, j] = tile[i, j]
        T.reduce_max(row, top, dim=1)
        for i, j in T.Parallel(R, N):
            row[i, j] = T.exp(row[i, j] - top[i])
        T.reduce_sum(row, total, dim=1)
        for i, j in T.Parallel(R, N):
            out[i, j] = row[i, j] / total[i]

    return _rows(T, vendor, M, N, R, (dtype, dtype), body)


def layernorm(T, vendor, M, N, R, dtype):
    """Each row less its mean, over its standard deviation; the variance from the differences, in a second pass."""

    @T.macro
    def body(tile, out):
        row = T.alloc_fragment((R, N), "float32")
        square = T.alloc_fragment((R, N), "float32")
        mean = T.alloc_fragment((R,), "float32")
        variance = T.alloc_fragment((R,), "float32")
        for i, j in T.Parallel(R, N):
            row[i, j] = tile[i, j]
        T.reduce_sum(row, mean, dim=1)
        for i, j in T.Parallel(R, N):
            row[i, j] = row[i, j] - mean[i] / N
            square[i, j] = row[i, j] * row[i, j]
        T.reduce_sum(square, variance, dim=1)
        for i, j in T.Parallel(R, N):
            out[i, j] = row[i, j] * T.rsqrt(variance[i] / N + 1e-5)

    return _rows(T, vendor, M, N, R, (dtype, dtype), body)


def rmsnorm(T, vendor, M, N, R, dtype):
    """Each row over the root of its mean square."""

    @T.macro
    def body(tile, out):
        square = T.alloc_fragment((R, N), "float32")
        total = T.alloc_fragment((R,), "float32")
        for i, j in T.Parallel(R, N):
            square[i, j] = tile[i, j] * tile[i, j]
        T.reduce_sum(square, total, dim=1)
        for i, j in T.Parallel(R, N):
            out[i, j] = tile[i, j] * T.rsqrt(total[i] / N + 1e-6)

    return _rows(T, vendor, M, N, R, (dtype, dtype), body)


def row_sum(T, vendor, M, N, R, dtype):
    """The sum of each row."""
    ascend = vendor == "ascend"

    @T.macro
    def body(tile, out):
        row = T.alloc_fragment((R, N), "float32")
        total = T.alloc_fragment((R,), "float32")
        for i, j in T.Parallel(R, N):
            row[i, j] = tile[i, j]
        T.reduce_sum(row, total, dim=1)
        for i in T.Parallel(R):
            out[i] = total[i]

    @T.prim_func
    def main(x: T.Tensor((M, N), dtype), y: T.Tensor((M,), "float32")):
        with T.Kernel(M // R) if ascend else T.Kernel(M // R, threads=THREADS) as block:
            tile = T.alloc_shared((R, N), dtype)
            out = T.alloc_shared((R,), "float32")
            T.copy(x[block * R, 0], tile)
            if ascend:
                with T.SimtVF(threads=THREADS):
                    body(tile, out)
            else:
                body(tile, out)
            T.copy(out, y[block * R])

    return main


def _normal(dtype, scale=1.0):
    return lambda M, N: lambda generator: [(torch.randn(M, N, generator=generator) * scale).to(dtype)]


def _gelu(x):
    x = x.double()
    return [0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))]


def _layernorm(x):
    x = x.double()
    return [torch.nn.functional.layer_norm(x, x.shape[1:], eps=1e-5)]


_HALF, _BF16, _F32 = torch.float16, torch.bfloat16, torch.float32
_TABLE = (
    # name, program, M, N, R, input, result, further sizes, expected, terms, magnitude, roundings
    ("exp, fp32", exponential, 24, 320, 4, _F32, _F32, {}, lambda x: [x.double().exp()], 1, 1.0, 4),
    ("cast, fp32 to fp16", cast, 16, 256, 4, _F32, _HALF, {"result": "float16"}, lambda x: [x.double()], 0, 1.0, 1),
    ("cast, fp32 to bf16", cast, 16, 256, 4, _F32, _BF16, {"result": "bfloat16"}, lambda x: [x.double()], 0, 1.0, 1),
    ("gelu, fp32", gelu, 8, 512, 2, _F32, _F32, {}, _gelu, 4, 1.0, 6),
    ("softmax, fp32", softmax, 24, 256, 4, _F32, _F32, {}, lambda x: [x.double().softmax(1)], 256, 0.01, 4),
    ("softmax, fp16", softmax, 16, 512, 2, _HALF, _HALF, {}, lambda x: [x.double().softmax(1)], 512, 0.01, 4),
    ("layernorm, fp32", layernorm, 24, 256, 4, _F32, _F32, {}, _layernorm, 256, 1.0, 6),
    (
        *("rmsnorm, fp32", rmsnorm, 12, 512, 4, _F32, _F32, {}),
        *(lambda x: [x.double() * (x.double().square().mean(1, keepdim=True) + 1e-6).rsqrt()], 512, 1.0, 6),
    ),
)
for _name, _program, _M, _N, _R, _given, _result, _more, _expected, _terms, _magnitude, _roundings in _TABLE:
    tile_case(
        TileCase(
            name=_name,
            program=_program,
            sizes={"M": _M, "N": _N, "R": _R, "dtype": str(_given).removeprefix("torch."), **_more},
            inputs=_normal(_given)(_M, _N),
            outputs=(((_M, _N), _result),),
            expected=_expected,
            terms=_terms,
            magnitude=_magnitude,
            roundings=_roundings,
        )
    )
tile_case(
    TileCase(
        name="row sums, fp32",
        program=row_sum,
        sizes={"M": 16, "N": 512, "R": 8, "dtype": "float32"},
        inputs=_normal(_F32)(16, 512),
        outputs=(((16,), _F32),),
        expected=lambda x: [x.double().sum(1)],
        terms=512,
    )
)
