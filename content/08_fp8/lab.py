# %% [markdown] top
# # Lab 08: numbers of eight bits
#
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("08.decode")` gives three hints of growing
#   strength. `solution("08.decode")` asks first.

# %% imports tags=["setup"]
import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, hint, progress, solution, virtual_gpu

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
# | `exponent_bits`, `mantissa_bits`, `bias` | whole numbers; at most 8 bits in all, with the sign. **Any** bias |
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
# 0.296875, half way, goes to 0x2a as well, since 0x29 is odd. `hint("08.encode")` gives three hints.


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
# | result | a new uint8 tensor, shape of `codes`, contiguous |
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
# 1 sign bit, 8 exponent bits and 13 fraction bits. The report of DeepSeek-V3 (arXiv 2412.19437) measured about 14 bits,
# and a relative error near 2% at K = 4096. It promotes every 128 elements.
#
# **Two puzzles.** All products are 1 and `bits` is 3. At which sum does the running sum stop growing, when products
# come one at a time? And when they come 32 at a time? If rounding were to the nearest, would a bound on K still follow?
#
# **A small example.** Products 16, 1, 1, 1 and 3 bits: e is 4, so all is cut to multiples of 2, and the sum is 16 in
# place of 19. The only interval to try is K = 4; the error is 3/19 = 0.16. `hint("08.accumulator")` gives three hints.


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

# %% [markdown] end of the lab
# ## Done

# %% progress
progress()
