# %% [markdown] top
# # Lab 09: the same answer on two chips
#
# **Seven exercises.**
#
# - **First**: lesson 09. It has the ideas; each statement says what else it needs.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("09.ulp")` gives three hints of growing strength. `solution("09.ulp")` asks first.

# %% imports tags=["setup"]
import torch
from torch import Tensor

from gpu_utils import check, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: how far apart

# %% [markdown] statement of ulp
# ## 09.ulp: how many numbers lie between
#
# Write `ulp(a, b)`: the distance of two results in *units in the last place*, element by element. It is the number of
# steps from one to the other, where a step goes to the next number that the type can hold.
#
# | | |
# |---|---|
# | `a`, `b` | tensors of one shape, any, and of one type: float16, bfloat16 or float32 |
# | result | int64, shape and device of `a` |
# | +0 and -0 | are the same number: 0 steps |
# | subnormal numbers | are numbers of the type, as many as there are |
# | infinity | one step above the largest number, as if it were the next |
# | NaN and NaN | 0, whatever their signs and payloads |
# | NaN and a number | 2^63 - 1, the largest int64: no tolerance may accept it |
#
# **A small example.** In float16 the numbers from 1 to 2 are 2^-10 apart, and those just below 1 are 2^-11 apart. So
# from 1 to 1 + 2^-10 it is one step, and from 1 to 1 - 2^-11 it is one step as well. From -0 to 0 it is none, and from
# the smallest positive number, 2^-24, to its negative two.
#
# **Two puzzles.** How many steps is it from 0 to 1 in float16, and how many from 1 to the largest number, 65,504? Guess
# before you ask your function. And a tolerance of 4 ulp: is that a relative or an absolute error?


# %% 09.ulp tags=["answer", "09.ulp"]
def ulp(a: Tensor, b: Tensor) -> Tensor:
    """Steps between neighbouring numbers of the type from a to b, int64.

    >>> a = torch.tensor([1.0, 1.0, -0.0], dtype=torch.float16)
    >>> b = torch.tensor([1 + 2**-10, 1 - 2**-11, 0.0], dtype=torch.float16)
    >>> ulp(a, b).tolist()
    [1, 1, 0]
    """
    # BEGIN SOLUTION
    whole, sign = torch.int16, 2**15
    if a.dtype == torch.float32:
        whole, sign = torch.int32, 2**31
    places = []
    for x in (a, b):
        bits = x.view(whole).long()
        places.append(torch.where(bits < 0, -(bits + sign), bits))
    apart = (places[0] - places[1]).abs()
    apart = torch.where(a.isnan() & b.isnan(), 0, apart)
    return torch.where(a.isnan() != b.isnan(), torch.iinfo(torch.int64).max, apart)
    # END SOLUTION


# %% 09.ulp check tags=["check", "09.ulp"]
check("09.ulp")

# %% [markdown] why ulp
# **Why it matters.** A relative error needs a number to divide by, and is undefined at zero. Steps of the type are there
# everywhere. They say at once whether two chips differ by one rounding or by an approximation, and a histogram of them
# reads the same for logits and for gradients.
#
# <details><summary>The puzzles</summary>
#
# 15,360 and 16,383: about as many numbers below 1 as above it, because half of the exponents lie on either side. And
# 4 ulp is nearly a relative error: between eps * 2 and eps * 4 of the number, by where it lies between two powers of
# two. Among subnormal numbers it is an absolute one.
#
# </details>

# %% [markdown] statement of reduction_order
# ## 09.reduction_order: PLACEHOLDER

# %% [markdown] statement of tolerance
# ## 09.tolerance: PLACEHOLDER

# %% [markdown] part 2
# ## Part 2: the same bits on purpose

# %% [markdown] statement of fixed_tree
# ## 09.fixed_tree: PLACEHOLDER

# %% [markdown] statement of batch_invariant
# ## 09.batch_invariant: PLACEHOLDER

# %% [markdown] part 3
# ## Part 3: noise or a bug

# %% [markdown] statement of layer_diff
# ## 09.layer_diff: PLACEHOLDER

# %% [markdown] statement of convergence
# ## 09.convergence: PLACEHOLDER

# %% [markdown] end of the lab
# ## Done
#
# PLACEHOLDER

# %% progress
progress()
