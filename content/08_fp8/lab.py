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

from gpu_utils import check, hint, progress, solution

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
# | result | float64, shape of `codes`. Each number is exact, NaN is NaN, and -0 is -0 where the format has one |
#
# | `specials` | no numbers | zeros | for example |
# |---|---|---|---|
# | `"ieee"` | the largest exponent field: infinity of either sign where the mantissa is 0, else NaN | 0, -0 | E5M2: 5, 2, bias 15 |
# | `"fn"` | all ones behind the sign, with either sign, is NaN; no infinity | 0, -0 | E4M3FN: 4, 3, bias 7 |
# | `"fnuz"` | the code that would be -0 is NaN; no infinity | 0 | E4M3FNUZ: 4, 3, bias 8 |
# | `"finite"` | none | 0, -0 | E2M1: 2, 1, bias 1 |
# | `"power"` | all ones is NaN | none | E8M0: 8, 0, bias 127; **no sign**, value $2^{\text{code} - \text{bias}}$ |
#
# Why float64: the first number of E8M0 is $2^{-127}$, below the normal numbers of float32. Some devices flush such a
# number to 0.
#
# **Two puzzles.** With IEEE's rule for specials, where would E4M3 end? And why has a format of scales no use for a sign,
# and can do without a zero?
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

# %% [markdown] end of the lab
# ## Done

# %% progress
progress()
