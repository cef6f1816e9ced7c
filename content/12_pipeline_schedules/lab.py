# %% [markdown] top
# # Lab 12: pipeline schedules
#
# **Seven exercises.**
#
# - **First**: lesson 12. It has the ideas; each statement says what else it needs.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("12.one_f_one_b")` gives three hints of growing strength. `solution("12.one_f_one_b")` asks first.

# %% imports tags=["setup"]
import torch
from torch import Tensor

from gpu_utils import check, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: one order, and what it costs

# %% [markdown] statement of one_f_one_b
# ## 12.one_f_one_b: PLACEHOLDER

# %% [markdown] statement of validate
# ## 12.validate: PLACEHOLDER

# %% [markdown] statement of bubble
# ## 12.bubble: PLACEHOLDER

# %% [markdown] statement of memory
# ## 12.memory: PLACEHOLDER

# %% [markdown] part 2
# ## Part 2: the backward in two

# %% [markdown] statement of zero_bubble
# ## 12.zero_bubble: the gaps filled
#
# The backward of a stage is two pieces. **I** makes the gradient of its input: the rank before waits for it. **W** makes
# the gradients of its weights: nobody waits for it. Write `zero_bubble(p, m)`: an order like 1F1B, of F, I and W, whose
# W fill gaps.
#
# | | |
# |---|---|
# | `p`, `m` | ranks and micro-batches, whole numbers of 1 or more; stage $r$ is on rank $r$ |
# | result | for each rank the list of its steps `("F", r, micro)`, `("I", r, micro)`, `("W", r, micro)` |
#
# Each of the three is done once for each micro-batch and rank. I needs F of its own rank and I of the next rank; W
# needs I of its own rank. Many orders will do. Two things are asked of yours:
#
# - **Memory.** A micro-batch is alive on a rank from the start of its F until the end of its W. On no rank are more
#   than $p$ alive at once: what 1F1B keeps on its fullest rank.
# - **Time.** No rank is idle for longer than $(p-1)(F+I) - (\min(p, m)-1)\,W$, with several costs F, I, W of which W
#   is never the longest. For $m \ge p$ that is $(p-1)(F+I-W)$. In the letters of DeepSeek-V3's report, with $B = I + W$,
#   it is $(p-1)(F+B-2W)$; 1F1B is idle for $(p-1)(F+B)$.
#
# **A small example.** `zero_bubble(2, 2)`. Rank 0 can only run `F F I W I W` if it is to begin early and lose little
# (micro-batch 0, 1, 0, 0, 1, 1). With F = I = W = 1 its I of micro-batch 0 can start when rank 1 has done F and I, at 3.
# When must rank 1 give the I of micro-batch 1, so that rank 0 goes on without a gap, and what may rank 1 put off?

# %% 12.zero_bubble tags=["answer", "12.zero_bubble"]
def zero_bubble(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    """For each rank its steps: ("F" | "I" | "W", stage, micro-batch).

    >>> "".join(kind for kind, stage, micro in zero_bubble(2, 2)[0])
    'FFIWIW'
    """
    # BEGIN SOLUTION
    order = []
    for rank in range(p):
        warm = min(p - 1 - rank, m)
        steps = [("F", rank, micro) for micro in range(warm)]
        done = 0
        for micro in range(m):
            if warm + micro < m:
                steps.append(("F", rank, warm + micro))
            steps.append(("I", rank, micro))
            if micro + 1 - done > rank:  # so many W may wait: p are alive
                steps.append(("W", rank, done))
                done += 1
        steps += [("W", rank, micro) for micro in range(done, m)]
        order.append(steps)
    return order
    # END SOLUTION


# %% 12.zero_bubble check tags=["check", "12.zero_bubble"]
check("12.zero_bubble")

# %% [markdown] own zero bubble
# **Look at it**: your order on four ranks, with W as long as I and with W half as long. Which gaps are left, and why can
# no W fill the first ones?

# %% your zero bubble drawn
runs = {}
with lesson.when_written():
    for w in (1.0, 0.5):
        runs[f"yours, W = {w:g}"] = lesson.simulated(zero_bubble(4, 8), m=8, W=w)
lesson.schedule_figure(runs) if runs else None

# %% [markdown] after zero bubble
# <details><summary>The small example</summary>
#
# Rank 0 has done its first I and W at 5, so rank 1 gives the second I then: it runs `F I F I` from 1 to 5. Both of
# its W come behind, and nothing waits for them.
#
# </details>

# %% [markdown] statement of dualpipe
# ## 12.dualpipe: PLACEHOLDER

# %% [markdown] part 3
# ## Part 3: on ranks and on a cluster

# %% [markdown] statement of choose
# ## 12.choose: PLACEHOLDER

# %% [markdown] payoff
# ## The payoff: PLACEHOLDER

# %% [markdown] end of the lab
# ## Done
#
# PLACEHOLDER

# %% progress
progress()
