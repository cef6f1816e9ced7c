# %% [markdown] top
# # Lab 08: FP8, from the bits to a training run
#
# **Ten exercises.** Five kernels: bytes from one vendor's to the other's, two quantisers, a product, a cache. Five in
# torch: codes read and written, a sum of few bits, a layer, a training run. In part 4 your own kernels compute a layer
# of a GPT-2 that your own recipe has trained.
#
# - **First**: lesson 08. Everything that is asked here is explained there.
# - **Time**: five sittings, one for each part. As a guess, not from a stopwatch: 60 minutes, 40, 50, 70 and 25. A stop
#   stands at the end of each.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("08.decode")` gives three hints of growing
#   strength. `solution("08.decode")` asks first.
# - **Which FP8**: kernels get the format as `fp8`, a dtype of torch. A check on `sm_89` gives `torch.float8_e4m3fn`,
#   one on `gfx942` `torch.float8_e4m3fnuz`. A target without FP8, such as `gfx90a`, is shown as skipped.

# %% imports tags=["setup"]
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, hint, lesson, progress, solution, virtual_gpu

# %% [markdown] part one
# ## Part 1: bytes

# %% [markdown] statement of decode
# ## 08.decode: what a code stands for
#
# Write `decode(codes, exponent_bits, mantissa_bits, bias, specials)`: the numbers that the codes of a narrow format
# stand for. A code has, from the top, one bit of sign, the exponent field $e$ and the mantissa $f$ of $m$ bits:
#
# $$ (-1)^s\, \Bigl(1 + \frac{f}{2^m}\Bigr)\, 2^{e - \text{bias}} \quad (e > 0), \qquad
# (-1)^s\, \frac{f}{2^m}\, 2^{1 - \text{bias}} \quad (e = 0) $$
#
# | | |
# |---|---|
# | `codes` | uint8, any shape; one code in the low bits of each byte, also where a code has 4 bits |
# | `exponent_bits`, `mantissa_bits` | at most 8 bits in all, with the sign; some mantissa, but for `"power"` |
# | `bias` | a whole number, **any** |
# | `specials` | which codes are no numbers: the next table |
# | result | float64, shape and device of `codes`. Exact; NaN is NaN, and -0 is -0 where the format has one |
#
# | `specials` | no numbers | zeros | for example |
# |---|---|---|---|
# | `"ieee"` | largest exponent field: infinity where the mantissa is 0, else NaN | 0, -0 | E5M2: 5, 2, bias 15 |
# | `"fn"` | all ones behind the sign, with either sign, is NaN; no infinity | 0, -0 | E4M3FN: 4, 3, bias 7 |
# | `"fnuz"` | the code that would be -0 is NaN; no infinity | 0 | E4M3FNUZ: 4, 3, bias 8 |
# | `"finite"` | none | 0, -0 | E2M1: 2, 1, bias 1 |
# | `"power"` | all ones is NaN; **no sign**; value $2^{\text{code} - \text{bias}}$ | none | E8M0: 8, 0, bias 127 |
#
# Why float64: the first number of E8M0 is $2^{-127}$, below the normal numbers of float32. Some devices flush such a
# number to 0.
#
# **Two puzzles.** With IEEE's rule for specials, where would E4M3 end? And why has a format of scales no use for a
# sign, and can do without a zero?
#
# **A small example.** 0x38 of E4M3FN is 0|0111|000 in binary: (1 + 0/8) · 2^(7 - 7) = 1. And 0x3a is 0|0111|010:
# 1 + 2/8 = 1.25. What is 0x01? `hint("08.decode")` gives three hints.


# %% 08.decode tags=["answer", "08.decode"]
def decode(
    codes: Tensor, exponent_bits: int, mantissa_bits: int, bias: int, specials: str
) -> Tensor:
    """The numbers of uint8 codes in a narrow format, as float64 of the same shape.

    >>> codes = torch.tensor([0x38, 0x3A, 0xB8, 0x01], dtype=torch.uint8)
    >>> decode(codes, 4, 3, 7, "fn").tolist()
    [1.0, 1.25, -1.0, 0.001953125]
    """
    # BEGIN SOLUTION
    codes = codes.long()  # uint8 would go around at 256
    if specials == "power":
        value = torch.exp2((codes - bias).double())
        return torch.where(codes == 2**exponent_bits - 1, torch.nan, value)
    top = 2 ** (exponent_bits + mantissa_bits)
    sign, size = codes // top, codes % top
    field, mantissa = size >> mantissa_bits, size % 2**mantissa_bits
    digits = mantissa + torch.where(field > 0, 2**mantissa_bits, 0)
    power = field.clamp(min=1) - bias - mantissa_bits
    value = digits * torch.exp2(power.double())
    if specials == "ieee":
        special = torch.where(mantissa == 0, torch.inf, torch.nan)
        value = torch.where(field == 2**exponent_bits - 1, special, value)
    if specials == "fn":
        value = torch.where(size == top - 1, torch.nan, value)
    value = torch.where(sign == 1, -value, value)
    if specials == "fnuz":
        value = torch.where(codes == top, torch.nan, value)
    return value
    # END SOLUTION


# %% tags=["check"]
check("08.decode")

# %% [markdown] why decode
# **Why it matters.** A checkpoint in FP8 is bytes and a word that says how to read them. Read by the wrong rule nearly
# all of them are still numbers, half or twice what they were: nothing crashes. The same byte is 448 in one format, 224
# in its neighbour, and NaN in a third.
#
# <details><summary>The puzzles and the small example</summary>
#
# At 240: exponent field 15 would hold no numbers, and field 14 ends at (1 + 7/8) · 2^7. E4M3FN's 448 is
# (1 + 6/8) · 2^8. A scale is a size, so it has no sign. A block of zeros is zeros at any scale, so none has to be 0;
# and what is divided by a scale is never divided by 0. 0x01 is (1/8) · 2^(1 - 7) = 2^-9 = 0.001953125.
#
# </details>

# %% [markdown] statement of encode
# ## 08.encode: the nearest number
#
# Write `encode(x, exponent_bits, mantissa_bits, bias, specials)`: the codes of the numbers of a format that are nearest
# to `x`.
#
# | | |
# |---|---|
# | `x` | float32, any shape: infinities and zeros of either sign, subnormal numbers; NaN where the format has one |
# | the rest | as in 08.decode |
# | between two numbers | the nearest; **a tie goes to the even code**, for `"power"` to the larger number |
# | too large, infinite | the largest number of the sign: it *saturates*. Infinity never comes out |
# | too small | becomes zero **with the sign of x**; with `"fnuz"`, which has no -0, zero. So does -0 itself |
# | NaN | any code that is NaN |
# | `"power"` | `x` is positive, or NaN; too small becomes the smallest number |
# | result | uint8, shape and device of `x` |
#
# A check decodes what you return: it knows all numbers of a format, all middles between two of them, and the float32
# just below and just above each middle.
#
# **Two puzzles.** Codes 0x07 and 0x08 of E4M3FN are neighbours, and so are 0x37 and 0x38. What does that say about a
# mantissa that is rounded up past its last value? And x = 1 + 1/16 + 1/1024, rounded to bfloat16 (7 bits of mantissa)
# and then to E4M3FN, gives another number than rounded once. Which two?
#
# **A small example.** 0.3 of E4M3FN lies between 0.28125 and 0.3125, codes 0x29 and 0x2a: the nearest is 0x2a. And
# 0.296875, half way, goes to 0x2a as well, since 0x29 is odd.
#
# **Two ways lead there**: arithmetic on the exponent, as a chip does it, or a search among all numbers of the format
# (`torch.searchsorted`), which are 256 at most. `hint("08.encode")` gives three hints.


# %% 08.encode tags=["answer", "08.encode"]
def encode(
    x: Tensor, exponent_bits: int, mantissa_bits: int, bias: int, specials: str
) -> Tensor:
    """The uint8 codes of the numbers nearest to float32 x in a narrow format.

    >>> x = torch.tensor([1.0, 0.3, 500.0, -0.0])
    >>> [hex(code) for code in encode(x, 4, 3, 7, "fn").tolist()]
    ['0x38', '0x2a', '0x7e', '0x80']
    """
    # BEGIN SOLUTION
    size = x.abs().nan_to_num()  # infinity becomes the largest float32
    top = 2 ** (exponent_bits + mantissa_bits)
    if specials == "power":
        fraction, exponent = torch.frexp(size)  # fraction * 2^exponent, 1/2 to 1
        code = (exponent - 1 + (fraction >= 0.75) + bias).clamp(0, top - 2)
        return torch.where(x.isnan(), top - 1, code).to(torch.uint8)
    lowest = 1 - bias  # from here down all steps are alike
    power = torch.frexp(size.clamp(min=2.0**lowest)).exponent - 1
    steps = torch.round(torch.ldexp(size, mantissa_bits - power))
    code = steps + (power - lowest) * 2**mantissa_bits
    given_up = {"ieee": 2**mantissa_bits, "fn": 1, "fnuz": 0, "finite": 0}[specials]
    code = code.clamp(max=top - 1 - given_up)
    negative = x.signbit()
    if specials == "fnuz":
        negative = negative & (code > 0)
    code = torch.where(negative, code + top, code)
    nan = top if specials == "fnuz" else top - 1
    return torch.where(x.isnan(), nan, code).to(torch.uint8)
    # END SOLUTION


# %% tags=["check"]
check("08.encode")

# %% [markdown] why encode
# **Why it matters.** These rules are choices, and libraries choose differently. A cast that does not saturate turns one
# large activation into NaN, and the NaN into a lost step. A cast that rounds twice is right on nearly every number, so
# no loss curve shows it, and two chips no longer agree to the bit.
#
# <details><summary>The puzzles</summary>
#
# 0x07 is the last subnormal number and 0x08 the first normal one, 0x37 is just below 1 and 0x38 is 1: one more in the
# code is one step more, also across the fields. The carry of the mantissa is the exponent's next value. Rounded once, x
# is 1.125, because it lies above the middle 1.0625 of 1 and 1.125. In bfloat16 it is 1.0625, the middle itself, a tie;
# the even code is that of 1.
#
# </details>

# %% [markdown] statement of fn_to_fnuz
# ## 08.fn_to_fnuz: the same number, another byte
#
# A cache holds E4M3FN bytes, and its scale is fixed: others read and write it too. An MI300X (gfx942) computes in
# E4M3FNUZ. In 03.fp8_weights the bytes stayed and the scale doubled; here **the scale stays and the bytes change**.
# Write `fn_to_fnuz(codes)`, as one launch of one kernel of your own:
#
# | | |
# |---|---|
# | `codes` | uint8, E4M3FN; one to four axes, any strides: a transpose, a part of a cache; it is not changed |
# | a finite number up to 240 | the code of the same number in E4M3FNUZ; it is always there, exactly |
# | above 240 | 240, with its sign |
# | -0 | 0 |
# | NaN (0x7f and 0xff) | FNUZ's NaN |
# | result | a new uint8 tensor, shape of `codes` |
#
# **Limits.** `launches`: 1. `global_load_bytes` and `global_store_bytes`: each byte once (10% more at most, and 1,024
# bytes). `blocks`: a program for some bytes, not for each one. torch may make tensors and views, and compute nothing.
# All of it holds on `sm_80` and on `gfx942`.
#
# **A puzzle.** Triton has types for both formats, and one conversion between them would do, where they are there.
# `sm_80` has neither. But codes are whole numbers in the order of their numbers: by how much do 0x38 and the FNUZ code
# of 1.0 differ? Does that hold for 0x3a, for 0x08, for 0x07?
#
# **Triton that helps.** `&`, `tl.where`, `tl.minimum`; `.to(tl.int32)` where 8 bits are too few. A tensor of fewer
# axes has four when axes of length 1 stand in front: `(1,) * (4 - codes.ndim) + codes.shape`, with strides of 0.
# Element i of the result then lies in `codes` at the sum of index times stride, and `%` and `//` give the indices.
# `hint("08.fn_to_fnuz")` gives three hints.


# %% 08.fn_to_fnuz tags=["answer", "08.fn_to_fnuz"]
@triton.jit
def fn_to_fnuz_kernel(
    codes_ptr,
    out_ptr,
    n,
    size1,
    size2,
    size3,
    stride0,
    stride1,
    stride2,
    stride3,
    BLOCK: tl.constexpr,
):
    # BEGIN SOLUTION
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = i % size3 * stride3 + i // size3 % size2 * stride2
    at += i // (size3 * size2) % size1 * stride1
    at += i // (size3 * size2 * size1) * stride0
    code = tl.load(codes_ptr + at, mask=i < n)
    size = code & 0x7F
    # a step of the exponent field is 8; without one there are twice as many steps
    found = tl.minimum(tl.where(size < 8, 2 * size, size + 8), 0x7F)
    found += tl.where(size > 0, code & 0x80, 0)
    found = tl.where(size == 0x7F, 0x80, found)
    tl.store(out_ptr + i, found, mask=i < n)
    # END SOLUTION


def fn_to_fnuz(codes: Tensor) -> Tensor:
    """E4M3FNUZ bytes of the numbers that E4M3FN bytes stand for; no scale changes.

    >>> codes = torch.tensor([0x38, 0x01, 0x7E, 0x80, 0xFF], dtype=torch.uint8)
    >>> with virtual_gpu("gfx942"):
    ...     [hex(code) for code in fn_to_fnuz(codes).tolist()]
    ['0x40', '0x2', '0x7f', '0x0', '0x80']
    """
    # BEGIN SOLUTION
    out = torch.empty(codes.shape, dtype=torch.uint8, device=codes.device)
    n, more, BLOCK = codes.numel(), 4 - codes.ndim, 1024
    sizes = (1,) * more + codes.shape
    strides = (0,) * more + codes.stride()
    grid = (triton.cdiv(n, BLOCK),)
    fn_to_fnuz_kernel[grid](codes, out, n, *sizes[1:], *strides, BLOCK=BLOCK)
    return out
    # END SOLUTION


# %% tags=["check"]
check("08.fn_to_fnuz")

# %% [markdown] why fn_to_fnuz
# **Why it matters.** The two formats share their name's first four letters, and 253 of 256 bytes are a number in both.
# A model that is served on two vendors has caches, checkpoints and scales in one of them. The conversion costs one
# pass over the bytes, or nothing at all where it is done in the kernel that reads them anyhow.
#
# <details><summary>The puzzle</summary>
#
# 0x38 and 0x40: 8, one exponent field. 0x3a and 0x08 are 8 apart from theirs, too. 0x07 is 7 steps of $2^{-9}$, and so
# 14 steps of $2^{-10}$: 0x0e.
#
# </details>

# %% [markdown] part two
# **A stop.** You can read and write any narrow format, and you know what changes between the two vendors' bytes. Next:
# the factor that makes eight bits enough.
#
# ## Part 2: scales

# %% [markdown] statement of quantize_tile
# ## 08.quantize_tile: activations, a scale for each 1 x 128
#
# Write `quantize_tile(x, fp8)`, as one launch of a kernel of your own. Each row of `x` is cut into tiles of 128
# elements; the last one may be short. For each tile
#
# $$ \text{scale} = \frac{\max |x|}{\text{largest number of fp8}}, \qquad
# \text{code} = \text{cast}\Bigl(\frac{x}{\text{scale}}\Bigr) $$
#
# | | |
# |---|---|
# | `x` | (M, K), bfloat16 or float32; any M, K and strides: a transpose, a part of a wider matrix |
# | `fp8` | `torch.float8_e4m3fn` or `torch.float8_e4m3fnuz` |
# | result | a tuple `(codes, scales)` |
# | `codes` | (M, K), dtype `fp8`, contiguous: x / scale to nearest; nothing is NaN |
# | `scales` | (M, number of tiles), float32: code times scale leads back to x |
# | a tile of zeros | codes of 0, and any finite scale |
#
# A code may be the neighbour of the nearest where x / scale lies beside the middle of two: Triton 3.7 goes to FP8 by
# way of float16 on `sm_89`, and so rounds twice (lesson, *Scales*).
#
# **Limits.** `launches`: 1. `global_load_bytes`: each element of `x` once (counted where K is a multiple of 128).
# `global_store_bytes`: each code and each scale once. `scratch_bytes`: 0. torch makes tensors, and computes nothing.
#
# **Two puzzles.** A tile holds 127 values near 1 and one of 3000. What is the smallest step between two codes near 1,
# in units of x? And which of the two formats has the larger scale for the same tile?
#
# **A small example.** A tile whose largest size is 896 has, in `e4m3fn`, the scale 896 / 448 = 2. What code has -3?
#
# **Triton that helps.** `tl.max(x, 1)` reduces a block along its second axis; `scale[:, None]` is a column. Four warps
# have 256 lanes on `gfx942`: a tile alone does not fill them, and some elements would be loaded twice.
# `codes_ptr.dtype.element_ty` is the type that a pointer points to, and `.to(...)` of it casts. `torch.finfo(fp8).max`
# is the format's largest number; give it to the kernel. `hint("08.quantize_tile")` gives three hints.


# %% 08.quantize_tile tags=["answer", "08.quantize_tile"]
@triton.jit
def quantize_tile_kernel(
    x_ptr,
    codes_ptr,
    scales_ptr,
    M,
    K,
    stride_m,
    stride_k,
    LARGEST: tl.constexpr,
    ROWS: tl.constexpr,
):
    # BEGIN SOLUTION
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(1) * 128 + tl.arange(0, 128)
    there = (m < M)[:, None] & (k < K)[None, :]
    at = m[:, None] * stride_m + k[None, :] * stride_k
    x = tl.load(x_ptr + at, mask=there, other=0.0).to(tl.float32)
    amax = tl.max(tl.abs(x), 1)
    scale = tl.where(amax > 0, amax / LARGEST, 1.0)
    codes = tl.clamp(x / scale[:, None], -LARGEST, LARGEST)
    codes = codes.to(codes_ptr.dtype.element_ty)
    tl.store(codes_ptr + m[:, None] * K + k[None, :], codes, mask=there)
    tile = m * tl.num_programs(1) + tl.program_id(1)
    tl.store(scales_ptr + tile, scale, mask=m < M)
    # END SOLUTION


def quantize_tile(x: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    """x in FP8 with a scale for each 128 elements of a row: (codes, scales)."""
    # BEGIN SOLUTION
    (M, K), ROWS = x.shape, 8
    tiles = triton.cdiv(K, 128)
    codes = torch.empty((M, K), dtype=fp8, device=x.device)
    scales = torch.empty((M, tiles), dtype=torch.float32, device=x.device)
    quantize_tile_kernel[(triton.cdiv(M, ROWS), tiles)](
        *(x, codes, scales, M, K, *x.stride()),
        LARGEST=torch.finfo(fp8).max,
        ROWS=ROWS,
    )
    return codes, scales
    # END SOLUTION


# %% tags=["check"]
check("08.quantize_tile")

# %% [markdown] why quantize_tile
# **Why it matters.** In an FP8 model this kernel runs in front of every product, and again in the backward pass: it
# reads two bytes for each element and writes one, so it is bound by memory, and is best done where the activation is
# made. The 448 that somebody wrote into such a kernel is a known fault on MI300X (pytorch/ao #4130).
#
# <details><summary>The puzzles and the small example</summary>
#
# The scale is 3000 / 448 = 6.7 in `e4m3fn`. 1 / 6.7 is 0.149, between 2^-3 and 2^-2, where numbers are 2^-6 apart: in
# units of x that is 0.1. Near 1 without the outlier a step would be 2^-3 of the value at most, too: the float format
# forgives. What is below 2^-10 of 6.7, 0.0065, becomes 0, and up to 0.1 there are fewer digits. `e4m3fnuz` ends at 240,
# so its scale is larger, by 448 / 240. And -3 / 2 is -1.5: sign 1, exponent field 7, mantissa 4, code 0xbc.
#
# </details>

# %% [markdown] statement of quantize_block
# ## 08.quantize_block: weights, a scale for each 128 x 128
#
# Write `quantize_block(w, fp8)`: as 08.quantize_tile, with one scale for each block of 128 rows and 128 columns. Blocks
# at the lower and the right edge may be short.
#
# | | |
# |---|---|
# | `w` | (N, K), float32 or bfloat16; any N, K and strides |
# | `codes` | (N, K), dtype `fp8`, contiguous |
# | `scales` | (blocks down, blocks across), float32; of a block of zeros any finite number |
#
# **Limits.** `launches`: 1. `global_load_bytes`: each element once (counted where N and K are multiples of 128): a
# block stays in registers until its largest size is known. `scratch_bytes`: 0, so it must have room there.
#
# **A puzzle.** A product of the forward pass sums along the rows of w, one of the backward pass along its columns.
# How many scales meet 128 terms of either sum, with blocks of 128 x 128, and with tiles of 1 x 128?
#
# **A small example.** w is 130 x 130. There are four blocks, of 128 x 128, 128 x 2, 2 x 128 and 2 x 2.
#
# **Triton that helps.** `tl.max` twice, or without an axis. 128 x 128 elements are 64 for each of 256 lanes.
# `hint("08.quantize_block")` gives three hints.


# %% 08.quantize_block tags=["answer", "08.quantize_block"]
@triton.jit
def quantize_block_kernel(
    w_ptr, codes_ptr, scales_ptr, N, K, stride_n, stride_k, LARGEST: tl.constexpr
):
    # BEGIN SOLUTION
    n = tl.program_id(0) * 128 + tl.arange(0, 128)
    k = tl.program_id(1) * 128 + tl.arange(0, 128)
    there = (n < N)[:, None] & (k < K)[None, :]
    at = n[:, None] * stride_n + k[None, :] * stride_k
    w = tl.load(w_ptr + at, mask=there, other=0.0).to(tl.float32)
    amax = tl.max(tl.max(tl.abs(w), 1), 0)
    scale = tl.where(amax > 0, amax / LARGEST, 1.0)
    codes = tl.clamp(w / scale, -LARGEST, LARGEST)
    codes = codes.to(codes_ptr.dtype.element_ty)
    tl.store(codes_ptr + n[:, None] * K + k[None, :], codes, mask=there)
    block = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(scales_ptr + block, scale)
    # END SOLUTION


def quantize_block(w: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    """w in FP8 with a scale for each 128 x 128 elements: (codes, scales)."""
    # BEGIN SOLUTION
    N, K = w.shape
    grid = triton.cdiv(N, 128), triton.cdiv(K, 128)
    codes = torch.empty((N, K), dtype=fp8, device=w.device)
    scales = torch.empty(grid, dtype=torch.float32, device=w.device)
    quantize_block_kernel[grid](
        *(w, codes, scales, N, K, *w.stride()),
        LARGEST=torch.finfo(fp8).max,
        num_warps=8,
    )
    return codes, scales
    # END SOLUTION


# %% tags=["check"]
check("08.quantize_block")

# %% [markdown] why quantize_block
# **Why it matters.** A square reads the same both ways, so one stored copy of a weight serves the forward and the
# backward pass. The scales of a layer of 7168 x 7168 are 56 x 56 numbers, and travel with the checkpoint.
#
# <details><summary>The puzzle</summary>
#
# A block has one scale for all 128 terms, whichever way the sum goes. With tiles of 1 x 128 along the rows, 128 terms
# down a column have 128 scales: no matrix unit can take them out of the sum.
#
# </details>

# %% [markdown] part three
# **A stop.** You have both quantisers of an FP8 training run, for both vendors. Next: what is multiplied, and what
# becomes of the sum.
#
# ## Part 3: sums and products

# %% [markdown] statement of accumulator
# ## 08.accumulator: a sum of few bits
#
# Write `accumulator(a, b, bits, bound)`: what a matrix instruction makes of the sums $\sum_k a_{ik} b_{ik}$ when it
# keeps few bits, and how often its sum must be carried out of it.
#
# **One instruction** adds the next 32 products of a row to a running sum that starts at 0. Products are exact. Of the
# 33 addends let $2^e \le |\text{value}| < 2^{e+1}$ for the largest in size. Every addend is cut **toward zero** to a
# multiple of $2^{e - \text{bits}}$. They are added exactly. The result is cut in the same way, by its own $e$: that
# is the new running sum. Where K is no multiple of 32, the last instruction has fewer products.
#
# **Promotion every n elements**: after n elements the running sum is added to a sum outside, in float32 or wider, and
# starts at 0 again. What is left at the end is added as well. n = K means that there is none.
#
# | | |
# |---|---|
# | `a`, `b` | float32, shape (rows, K): numbers of E4M3, times a power of two for each row |
# | `bits` | fraction bits that are kept: 3 to 23 |
# | `bound` | largest relative error that is allowed in any row, against the exact sum of the row |
# | result | a tuple `(sums, every)` |
# | `sums` | shape (rows,), float32 or float64: the sums **without promotion**, exactly as the instruction makes them |
# | `every` | the largest of 32, 64, 128, ... below K, and K, with which every row is within the bound; 0 if none is |
#
# The rule is that of Hopper's FP8 instructions as "Insights into DeepSeek-V3" (arXiv 2505.09343) describes it: sums of
# 1 sign bit, 8 exponent bits and 13 fraction bits. (An H100 takes $e$ of a product as the sum of the exponents of its
# factors, which may be one less. Nothing changes where all products are positive; with factors of a bell curve one sum
# in ten ends in other last digits. The lesson's model does as the H100 does.) The report of DeepSeek-V3 (arXiv
# 2412.19437) measured about 14 bits, and a relative error near 2% at K = 4096. It promotes every 128 elements.
#
# **Two puzzles.** All products are 1 and `bits` is 3. At which sum does the running sum stop growing, when products
# come one at a time? And when they come 32 at a time? If rounding were to the nearest, would a bound on K still follow?
#
# **A small example.** Products 16, 1, 1, 1 and 3 bits: e is 4, so all is cut to multiples of 2, and the sum is 16 in
# place of 19. The only interval to try is K = 4; the error is 3/19 = 0.16.
#
# **torch that helps.** `torch.frexp(v)` gives a fraction from 1/2 up to 1 and an exponent: e is that exponent less 1.
# Where all addends are 0 the sum is 0, whatever e is. `hint("08.accumulator")` gives three hints.


# %% 08.accumulator tags=["answer", "08.accumulator"]
def accumulator(a: Tensor, b: Tensor, bits: int, bound: float) -> tuple[Tensor, int]:
    """(sums of the rows of a * b by an instruction of few bits, interval of promotion).

    >>> a, b = torch.tensor([[16.0, 1.0, 1.0, 1.0]]), torch.ones(1, 4)
    >>> sums, every = accumulator(a, b, bits=3, bound=0.1)
    >>> sums.tolist(), every
    ([16.0], 0)
    """
    # BEGIN SOLUTION
    products = (a * b).double()  # float32 holds each of them exactly
    exact, K = products.sum(dim=1), products.shape[1]

    def cut(x: Tensor, largest: Tensor) -> Tensor:
        step = torch.exp2(torch.frexp(largest).exponent - 1 - bits)
        return torch.trunc(x / step) * step

    def summed(every: int) -> Tensor:
        outside = total = torch.zeros_like(exact)[:, None]
        for first in range(0, K, 32):
            if first % every == 0:
                outside, total = outside + total, torch.zeros_like(total)
            addends = torch.cat((total, products[:, first : first + 32]), dim=1)
            lined_up = cut(addends, addends.abs().amax(dim=1, keepdim=True))
            total = lined_up.sum(dim=1, keepdim=True)
            total = cut(total, total)
        return (outside + total)[:, 0]

    intervals = [32]
    while intervals[-1] < K:
        intervals.append(2 * intervals[-1])
    intervals[-1] = K
    found = 0
    for every in intervals:
        sums = summed(every)
        if ((sums - exact) / exact).abs().max() <= bound:
            found = every
    return sums, found
    # END SOLUTION


# %% tags=["check"]
check("08.accumulator")

# %% [markdown] why accumulator
# **Why it matters.** The error of such a sum grows with K, not with its root, because what is cut is cut in one
# direction. Nothing warns: the product of two FP8 matrices has the right size and the right shape. A promotion costs
# an addition outside of the matrix unit for each element of the result, so it is done as rarely as the bound allows.
#
# <details><summary>The puzzles</summary>
#
# One at a time the sum stops at 16: from there on the step is 2, and a 1 is cut to 0. 32 at a time the first
# instruction starts with a running sum of 0, where e is 0 and the step 1/8: it makes 32, exactly. The second one lines
# its products up to 32, where the step is 4, and adds nothing. To the nearest, an addend below half a step is lost as
# well, so one at a time the sum stops too; above that the errors go up and down and partly cancel.
#
# </details>

# %% [markdown] statement of gemm
# ## 08.gemm: FP8 times FP8, promoted every 128
#
# Write `gemm(a, a_scales, b, b_scales)`, as one launch of one kernel:
#
# $$ \text{out}_{m,n} = \sum_{t} \text{a\_scales}_{m,t}\; \text{b\_scales}_{\lfloor n/128 \rfloor,\, t}
# \sum_{k \in \text{tile } t} a_{m,k}\, b_{n,k} $$
#
# | | |
# |---|---|
# | `a` | (M, K), codes in the chip's FP8; rows lie side by side, or in a wider matrix with anything beside |
# | `a_scales` | (M, tiles), float32, contiguous: a scale for each 1 x 128, as 08.quantize_tile makes them |
# | `b` | (N, K), codes, like a weight of `nn.Linear`; `b_scales` (blocks of N, tiles): a scale for each 128 x 128 |
# | M, N, K | any: no multiple of anything, K shorter than a tile |
# | result | (M, N), bfloat16; summed in float32, rounded once |
#
# The codes meet the matrix unit as they are. After 128 steps the unit's sum is taken out, scaled, and added in float32:
# *promoted*.
#
# **Limits.** `launches`: 1. `fp8_matrix_flops`: at least `2 * M * N * K`, by matrix instructions on FP8; what was
# turned into 16 bits first does not count. Where M and N are multiples of 64 and K of 128, at most twice as many, and
# `global_load_sectors` at most what tiles of 64 x 64 load. `scratch_bytes`: 0. It all holds on `sm_89` and on `gfx942`.
# That you promote is not checked: virtual GPUs add in full precision. A sum that stays in the unit shows on a Hopper.
#
# **Two puzzles.** Per element of the result and 128 steps: how many multiplications does the matrix unit do, and how
# many operations does the promotion add? And why can neither scale be multiplied to the codes before the product?
#
# **A small example.** K = 256, all codes 1, a's scales 1 and 2, b's scales 1 and 10: 128 · 1 + 128 · 20 = 2688, which
# bfloat16 holds. What would one scale behind the loop make of it?
#
# **Triton that helps.** `tl.dot` of two FP8 tiles gives a float32 tile. `n // 128` of a vector of columns is a vector
# of rows of `b_scales`. The loop is that of 05.tiled. `hint("08.gemm")` gives three hints.


# %% 08.gemm tags=["answer", "08.gemm"]
@triton.jit
def gemm_kernel(
    a_ptr,
    a_scales_ptr,
    b_ptr,
    b_scales_ptr,
    out_ptr,
    M,
    N,
    K,
    stride_am,
    stride_bn,
    BLOCK: tl.constexpr,
):
    # BEGIN SOLUTION
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    tiles = tl.cdiv(K, 128)
    for tile in range(tiles):
        k = tile * 128 + tl.arange(0, 128)
        a_there = (m < M)[:, None] & (k < K)[None, :]
        b_there = (k < K)[:, None] & (n < N)[None, :]
        a_at = a_ptr + m[:, None] * stride_am + k[None, :]
        b_at = b_ptr + k[:, None] + n[None, :] * stride_bn
        a = tl.load(a_at, mask=a_there, other=0.0)
        b = tl.load(b_at, mask=b_there, other=0.0)
        a_scale = tl.load(a_scales_ptr + m * tiles + tile, mask=m < M, other=0.0)
        b_at = b_scales_ptr + n // 128 * tiles + tile
        b_scale = tl.load(b_at, mask=n < N, other=0.0)
        acc += tl.dot(a, b) * a_scale[:, None] * b_scale[None, :]
    there = (m < M)[:, None] & (n < N)[None, :]
    tl.store(out_ptr + m[:, None] * N + n[None, :], acc, mask=there)
    # END SOLUTION


def gemm(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor) -> Tensor:
    """The product of what codes and scales stand for: a (M, K) times b (N, K).T."""
    # BEGIN SOLUTION
    (M, K), N = a.shape, b.shape[0]
    out = torch.empty((M, N), dtype=torch.bfloat16, device=a.device)
    gemm_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](
        *(a, a_scales, b, b_scales, out, M, N, K, a.stride(0), b.stride(0)),
        BLOCK=64,
        num_warps=8,
    )
    return out
    # END SOLUTION


# %% tags=["check"]
check("08.gemm")

# %% [markdown] why gemm
# **Why it matters.** Nothing in this loop knows the vendor; the codes and the scales do. On Hopper one group of warps
# promotes while another multiplies (arXiv 2412.19437, section 3.3). The loop is the idea of DeepGEMM, which reaches up
# to 1,550 TFLOP/s on an H800. (source: [deepseek-ai/DeepGEMM](https://github.com/deepseek-ai/DeepGEMM), README) The
# course's solution makes 414 TFLOP/s on an H100 where M, N and K are 4,096, and torch's product with the same scales
# 1,156; at 1,024 it is 224 against 178. (measured: H100, torch 2.11, Triton 3.6, 2026-11-26;
# benchmarks/results/fp8_sm_90.json)
#
# <details><summary>The puzzles and the small example</summary>
#
# 128 multiplications (and additions) in the unit; the promotion adds two multiplications and an addition, or one of
# each when the two scales are multiplied once for a tile. A code times a scale is no code: it would have to be rounded
# to FP8 again, or be a wider number. Behind the loop one scale would make 256 · 1 or 256 · 20 of it.
#
# </details>

# %% [markdown] part four
# **A stop.** You have a product that runs on the FP8 units of both vendors, and you know what its sum may lose. Next:
# a model learns with it.
#
# ## Part 4: training

# %% [markdown] statement of linear
# ## 08.linear: three products, and which way their tiles lie
#
# Write `linear(x, w)`, a linear layer that autograd can go back through. All three of its products have their operands
# in E4M3 (`torch.float8_e4m3fn`), as in DeepSeek-V3's training:
#
# | product | first operand, its tiles | second operand, its tiles |
# |---|---|---|
# | `y = x @ w.T` | x, 1 x 128 | w, 128 x 128 |
# | `dx = dy @ w` | dy, 1 x 128 | w, the same codes as for y |
# | `dw = dy.T @ x` | dy, 128 x 1: along the tokens | **what was kept of x** for y, quantised again, 128 x 1 |
#
# Between the passes x is kept as codes and scales, a byte for each element. dy comes in float32 and is quantised from
# there for each of its products.
#
# | | |
# |---|---|
# | `x`, `w` | float32, (tokens, K) and (N, K); any sizes, so the last tiles may be short |
# | a tile | scale = largest size / 448 in float32, of zeros 1; code = cast of element / scale |
# | `y`, `dx`, `dw` | float32, of the codes times their scales; sums in float32 |
#
# Here it runs in plain torch, so that you see the numbers and not the kernels: quantise, multiply by the scales again,
# and use `@` on the float32 matrices that come of it.
#
# **Two puzzles.** Why does w need no second copy and x does? And what is the derivative of a rounding, nearly
# everywhere? What does the backward pass do about it?
#
# **A small example.** x is one row (448, 1.03), w one row (1, 1). The tile's scale is 1; 1.03 becomes 1, so y is 449.
# With dy = 1, dx is (1, 1).
#
# **torch that helps.** A `torch.autograd.Function` has static methods `forward(ctx, x, w)` and `backward(ctx, dy)`;
# `ctx.save_for_backward(...)` keeps tensors, `ctx.saved_tensors` gives them back, and `backward` returns a gradient for
# each argument of `forward`. `torch.nn.functional.pad(x, (left, right, above, below))` pads with zeros.
# `hint("08.linear")` gives three hints.


# %% 08.linear tags=["answer", "08.linear"]
def quantized(x: Tensor, rows: int, cols: int) -> tuple[Tensor, Tensor]:
    """x in E4M3, with a float32 scale for each rows x cols: (codes, scales)."""
    # BEGIN SOLUTION
    padded = torch.nn.functional.pad(x, (0, -x.shape[1] % cols, 0, -x.shape[0] % rows))
    tiles = padded.unflatten(1, (-1, cols)).unflatten(0, (-1, rows))
    amax = tiles.abs().amax((1, 3))
    scales = torch.where(amax > 0, amax / 448, 1.0)
    parts = tiles / scales[:, None, :, None]
    parts = parts.flatten(2).flatten(0, 1)[: x.shape[0], : x.shape[1]]
    return parts.to(torch.float8_e4m3fn), scales
    # END SOLUTION


def values(codes: Tensor, scales: Tensor, rows: int, cols: int) -> Tensor:
    """What codes and their scales stand for, float32."""
    # BEGIN SOLUTION
    wide = scales.repeat_interleave(rows, 0).repeat_interleave(cols, 1)
    return codes.float() * wide[: codes.shape[0], : codes.shape[1]]
    # END SOLUTION


class Fp8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        # BEGIN SOLUTION
        kept, weight = quantized(x, 1, 128), quantized(w, 128, 128)
        ctx.save_for_backward(*kept, *weight)
        return values(*kept, 1, 128) @ values(*weight, 128, 128).T
        # END SOLUTION

    @staticmethod
    def backward(ctx, dy):
        # BEGIN SOLUTION
        codes, scales, *weight = ctx.saved_tensors
        kept = quantized(values(codes, scales, 1, 128), 128, 1)
        dx = values(*quantized(dy, 1, 128), 1, 128) @ values(*weight, 128, 128)
        dw = values(*quantized(dy, 128, 1), 128, 1).T @ values(*kept, 128, 1)
        return dx, dw
        # END SOLUTION


def linear(x: Tensor, w: Tensor) -> Tensor:
    """x (tokens, K) @ w (N, K).T with operands in E4M3, forward and backward."""
    return Fp8Linear.apply(x, w)


# %% tags=["check"]
check("08.linear")

# %% [markdown] why linear
# **Why it matters.** Two of three products of a training step are in the backward pass, so a layer that goes back in
# 16 bits gains a third of what it could. And x is what training keeps: at a byte for each element, half of what
# bfloat16 would keep.
#
# <details><summary>The puzzles</summary>
#
# In a block of 128 x 128 the scale is the same along both letters, so the codes of w serve both sums. The tiles of x
# lie along K; a sum over tokens would meet another scale with each term. The derivative of a rounding is 0 nearly
# everywhere, and infinite at the steps. The backward pass leaves it out, as if y had been computed without, and rounds
# operands of its own: that is called straight-through.
#
# </details>

# %% [markdown] statement of train
# ## 08.train: a recipe, its log, and its gap
#
# Here scales come from the past, as in NVIDIA's delayed scaling: one for a whole matrix, and it must be there before
# the product. Write `train(model, batches, rate, linear)`, which trains a GPT-2 and notes what it saw:
#
# | | |
# |---|---|
# | `model` | a small GPT-2, float32; `model.h` are its blocks, `block.get_submodule("mlp.c_fc")` finds a layer |
# | `batches` | a list of pairs (inputs, targets); `model.loss(inputs, targets)` is the loss |
# | `rate` | the learning rate: `torch.optim.AdamW(model.parameters(), lr=rate)`, one step for each batch, in order |
# | `linear` | `linear(x, w, scales, seen)`: the product in E4M3, forward and backward (below) |
# | result | a tuple `(losses, log)`: a float for each batch, and a dict of the largest sizes |
#
# A block has four `nn.Linear`: `attn.c_attn`, `attn.c_proj`, `mlp.c_fc` and `mlp.c_proj`. The log has an entry for each
# of them and each operand: `log["h.0.attn.c_attn"]["dy"]` is a list with one number for each step, and so for `"x"` and
# `"w"`, and for the other layers and blocks.
#
# `linear` gives `x @ w.T` without the bias, for x of shape (..., K) as a layer gets it. `scales` is a dict of three
# floats above 0, `{"x": ..., "w": ..., "dy": ...}`, for whole matrices: what is larger than 448 times the scale is cut
# off there. It calls `seen("x", amax)` and `seen("w", amax)` in the forward pass, and `seen("dy", amax)` in the
# backward pass: the largest sizes.
#
# **What is judged**, on weights and text drawn anew:
#
# - *Products.* All four linear layers of each block multiply by `linear`, with their own float32 weights, and nothing
#   else does.
# - *The log* holds what was seen, in each pass.
# - *The loop.* The check takes your scales, step by step, and trains once more in a plain loop. Each of your losses
#   must be within 1% of that. And your trained weights: at most 7% as far from the loop's as those are from the first.
# - *The first step* of the optimiser. Of no matrix more than 40% is cut off, and each amax is at least 448 times its
#   scale / 1,000. (Passes that only look are not judged here.)
# - *The later steps.* No amax is more than 6 times what its scale can hold; of each operand's elements, over all layers
#   and steps, at most 0.5% are cut off; and after the eighth step some amax of it is at least a thousandth of what its
#   scale can hold.
# - *The gap.* The loss of the trained model on text of its own, in float32, is at most 2.5% above that of the same
#   training in bfloat16.
#
# **Your recipe** is the rule from history to scale: how many steps back, how much room for growth, and what to do at
# the first step. Gradients are thousands of times smaller than activations; a rule that fits all must look. Passes that
# only look, forward and back without a step, are allowed; they are in the log, too. A first scale of x and w can also
# be made from the matrix before you, and a constant for dy must be right within a factor of about a hundred.
#
# **A look has scales, too**, and sees what they leave. Where x is cut off, the layers behind show smaller sizes than
# they will have. Where a whole gradient became 0, the layers before show *an amax of 0*: a scale must be above 0, and
# any such number will do for a matrix of zeros, but it says nothing about the next one.
#
# **Two puzzles.** A history of one step, or of a hundred: what does each do after a single spike, and what while sizes
# grow? And a margin of 2 costs how much of E4M3's range?
#
# **A small example.** If the sizes of x were 3.1, 3.5 and 3.3, a history of three with room for twice as much gives the
# scale 2 · 3.5 / 448 = 0.0156.
#
# **Python that helps.** `layer.forward = partial(forward, layer, history)` gives one layer another forward, called as
# `forward(layer, history, x)`. The layer's own bias is yours to add. `hint("08.train")` gives three hints.


# %% 08.train tags=["answer", "08.train"]
LAYERS = "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"


def scale_from(sizes: list[float]) -> float:
    """Your rule: the next scale, from the largest sizes of the steps before."""
    # BEGIN SOLUTION
    largest = max(sizes[-8:], default=0.0)
    return 2 * largest / 448 if largest else 1e-3
    # END SOLUTION


def fp8_forward(layer, history, product, x):
    """The new forward of one layer, which adds to its history of sizes by operand."""
    # BEGIN SOLUTION
    scales = {operand: scale_from(sizes) for operand, sizes in history.items()}

    def seen(operand, amax):
        history[operand].append(amax)

    return product(x, layer.weight, scales, seen) + layer.bias
    # END SOLUTION


def train(model, batches, rate, linear):
    """Train the model in FP8: (losses, log of the largest sizes)."""
    # BEGIN SOLUTION
    log = {}
    for number, block in enumerate(model.h):
        for name in LAYERS:
            layer = block.get_submodule(name)
            history = log[f"h.{number}.{name}"] = {"x": [], "w": [], "dy": []}
            layer.forward = partial(fp8_forward, layer, history, linear)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    # only looks: the first step has a history
    model.loss(*batches[0]).backward()
    optimizer.zero_grad()
    losses = []
    for inputs, targets in batches:
        loss = model.loss(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, log
    # END SOLUTION


# %% tags=["check"]
check("08.train")

# %% [markdown] why train
# **Why it matters.** The history is the recipe's memory and its alarm: the same numbers that make the scales show a
# layer whose activations double every hundred steps, long before the loss says so. Keep the log in every FP8 run.
#
# <details><summary>The puzzles</summary>
#
# One step back forgets a spike at once and is always one step late while sizes grow; a hundred steps keep the scale of
# a spike for a hundred steps, and small numbers lose digits all that time. A margin of 2 costs one power of two: E4M3
# has about 18 of them, from 2^-9 to 448.
#
# Without any room, x and dy exceed a history of one step in every second pass, and one of 16 in every fourth or fifth.
# Both pass the check: most sizes exceed it by little, less than 0.1% of the elements are cut off, and the gap in runs
# like those of the check is 0.1% to 0.2%, where one run moves by 0.2%; with room for twice as much it is 0.0%. Half of
# the last largest size in place of twice of it cuts off 5% of the weights, and fails.
#
# </details>

# %% [markdown] your recipe on text
# ### Your recipe on Python's own text
#
# Now the GPT-2 of lesson 08, two layers of width 128 on Python's standard library, 60 steps: once by your `train`, once
# in bfloat16 from the same weights and batches. The *gap* is that of the loss on validation text, in percent; one run
# of 60 steps moves by half a percent for no reason. So a good gap is within half a percent of 0, on either side; from
# one percent on look at the first step, then at the log. To see less than that takes more runs or longer ones, as in
# lesson 08. Below the losses is what your scales made of the operand that came nearest to the edge, pass by pass: looks
# count.
#
# Look at the first step. A gradient that a wrong first scale has spoilt stays in AdamW's memory for many steps. With
# the course's rule, a first scale of 0.001 for what nobody has seen costs almost 3% here, one of 2 more than 3%; with
# one pass that only looks, before the first step, the gap is mostly within half a percent.

# %% your training
run = None
with lesson.when_written():
    run = lesson.own_fp8_training(train)
lesson.table(run.rows if run else {}, first="run")

# %% what your scales saw
run and lesson.amax_figure(run.nearest)

# %% [markdown] your kernels
# ### One of its layers on your kernels
#
# Everything comes together: the activations and the weight of a layer that your recipe has trained, quantised by your
# two kernels and multiplied by your third, on the virtual GPUs of both vendors. *off* is the largest difference from
# the exact product, as a share of its largest element.
#
# What should *off* be? Each operand is off by 2.6% (root mean square, as in lesson 08), so each of their products by
# about $\sqrt{2} \cdot 2.6 = 3.7\%$. A sum does not change that share as long as terms have any sign: the sum and its
# error both grow like $\sqrt{K}$. Where the terms agree in sign the sum grows faster, and the share is smaller. And the
# largest of thousands of errors is about four times a usual one, as the largest result is four times a usual result. So
# 3.7% or a little less is what eight bits give, and 3% is good. Kernels that are wrong show more: with the first
# block's scale for all columns *off* is about 10% here, with the scales of other rows about 19%.

# %% your kernels on a layer
rows, CHIPS = {}, {"sm_89": torch.float8_e4m3fn, "gfx942": torch.float8_e4m3fnuz}
with lesson.when_written():
    for target, fp8 in CHIPS.items() if run else ():
        x, w = run.operands("h.1.mlp.c_fc")
        exact = x.double() @ w.double().T
        with virtual_gpu(target) as gpu:
            y = gemm(*quantize_tile(x, fp8), *quantize_block(w, fp8))
        off = (y.double() - exact).abs().max() / exact.abs().max()
        counted = gpu.counters.totals()["fp8_matrix_flops"]
        rows[target] = {"format": str(fp8), "off": off, "FP8 FLOPs": counted}
lesson.table(rows, first="target")

# %% [markdown] part five
# **A stop.** A model has learned in FP8 by your rule, and one of its layers runs on your kernels. Last: what is kept
# while it writes.
#
# ## Part 5: a cache of bytes

# %% [markdown] statement of kv_cache_fp8
# ## 08.kv_cache_fp8: 656 bytes a token
#
# Multi-head latent attention (lesson 06) keeps for each token 512 latent numbers and 64 that carry its position, the
# *rope*: 1,152 bytes in bfloat16. In FP8 an entry has 656 bytes:
#
# | bytes | what |
# |---|---|
# | 0 to 511 | 512 codes in FP8, of the latent numbers |
# | 512 to 527 | 4 scales in float32, for each 128 of them, as in 08.quantize_tile |
# | 528 to 655 | the 64 numbers of the rope, in bfloat16 as they were |
#
# Write `kv_cache_fp8(latent, rope, slots, size, fp8)`, as one launch of one kernel:
#
# | | |
# |---|---|
# | `latent`, `rope` | bfloat16, (tokens, 512) and (tokens, 64); both may be parts of one matrix (tokens, 576) |
# | `slots` | int64, (tokens,): the entry of each token, all different; a negative one is padding and is not stored |
# | `size` | how many entries the cache has |
# | `fp8` | the chip's E4M3, a dtype |
# | result | a new cache, uint8 of shape (size, 656); entries of no token are 0 |
#
# **Limits.** `launches`: 1. `global_load_sectors`, `global_store_bytes`: each number once, 656 bytes for a token. torch
# makes tensors and views, and computes nothing.
#
# **A puzzle.** Where does entry 3 begin, counted in bytes, in float32, in bfloat16? Which sizes of an entry would make
# this impossible?
#
# **A small example.** `slots` is (2, -1, 0) and `size` 4: token 0 is in entry 2, token 1 nowhere, token 2 in entry 0,
# and entries 1 and 3 are zeros.
#
# **torch and Triton that help.** `cache.view(torch.float32)` of a contiguous uint8 tensor is the same memory as
# float32, and `cache.view(fp8)` as FP8; a kernel may take all of them. `if slot >= 0:` works on a number that was
# loaded. `hint("08.kv_cache_fp8")` gives three hints.


# %% 08.kv_cache_fp8 tags=["answer", "08.kv_cache_fp8"]
@triton.jit
def kv_cache_kernel(
    latent_ptr,
    rope_ptr,
    slots_ptr,
    codes_ptr,
    scales_ptr,
    kept_ptr,
    latent_row,
    rope_row,
    LARGEST: tl.constexpr,
):
    """One token: its codes, scales and rope to its entry, under three types."""
    # BEGIN SOLUTION
    token = tl.program_id(0)
    slot = tl.load(slots_ptr + token)
    if slot >= 0:
        tile, d = tl.arange(0, 4), tl.arange(0, 64)
        at = tile[:, None] * 128 + tl.arange(0, 128)[None, :]
        x = tl.load(latent_ptr + token * latent_row + at).to(tl.float32)
        amax = tl.max(tl.abs(x), 1)
        scale = tl.where(amax > 0, amax / LARGEST, 1.0)
        codes = tl.clamp(x / scale[:, None], -LARGEST, LARGEST)
        codes = codes.to(codes_ptr.dtype.element_ty)
        tl.store(codes_ptr + slot * 656 + at, codes)
        tl.store(scales_ptr + slot * 164 + 128 + tile, scale)
        rope = tl.load(rope_ptr + token * rope_row + d)
        tl.store(kept_ptr + slot * 328 + 264 + d, rope)
    # END SOLUTION


def kv_cache_fp8(
    latent: Tensor, rope: Tensor, slots: Tensor, size: int, fp8: torch.dtype
) -> Tensor:
    """A cache of `size` entries of 656 bytes, with the tokens at their slots."""
    # BEGIN SOLUTION
    cache = torch.zeros((size, 656), dtype=torch.uint8, device=latent.device)
    views = cache.view(fp8), cache.view(torch.float32), cache.view(torch.bfloat16)
    kv_cache_kernel[(len(slots),)](
        *(latent, rope, slots, *views, latent.stride(0), rope.stride(0)),
        LARGEST=torch.finfo(fp8).max,
    )
    return cache
    # END SOLUTION


# %% tags=["check"]
check("08.kv_cache_fp8")

# %% [markdown] why kv_cache_fp8
# **Why it matters.** Decoding is bound by the bytes of the cache: 57% of the bytes are nearly 57% of the time, and 1.76
# times the tokens in the same memory. FlashMLA reads this layout (its
# [README](https://github.com/deepseek-ai/FlashMLA)), and vLLM writes it
# ([flashmla_sparse](https://docs.vllm.ai/en/v0.11.0/api/vllm/v1/attention/backends/mla/flashmla_sparse.html)).
#
# <details><summary>The puzzle</summary>
#
# At byte 1968, float32 492, bfloat16 984. An entry whose bytes 4 does not divide would put scales between two words:
# no view of float32 could reach them.
#
# </details>

# %% [markdown] challenge
# ## A challenge: an FP8 product in the fewest cycles
#
# Optional, and against yourself alone. Your `gemm` gets 128 x 256 x 512 on both virtual GPUs; the predicted cycles are
# added up. Only a right answer enters, within the limits of 08.gemm. Look what binds first: the promotion is vector
# work, three instructions for each element of the result and 128 steps. Which tile has fewest of them for a lane? Can
# the scale of b be loaded once for a program?

# %% your entry
from gpu_utils import challenge

challenge("08")

# %% [markdown] end of the lab
# ## Done
#
# From one byte to a training run. Every number of it has eight bits, and what keeps it honest are the wider ones beside
# them: scales, sums, master weights. Unit 09 asks when two such runs, on two chips, are the same.

# %% progress
progress()
