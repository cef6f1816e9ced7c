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
# The backward of a stage is two pieces. **I** makes the gradient of its input: the rank before waits for it. **W**
# makes the gradients of its weights: nobody waits for it. Write `zero_bubble(p, m)`: an order like 1F1B, of F, I and W,
# whose W fill gaps.
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
#   is never longer than F or I. For $m \ge p$ that is $(p-1)(F+I-W)$. In the letters of DeepSeek-V3's report, with
#   $B = I + W$, it is $(p-1)(F+B-2W)$; 1F1B is idle for $(p-1)(F+B)$.
#
# **A small example.** In `zero_bubble(2, 2)` rank 0 runs `F F I W I W`, with the micro-batches 0, 1, 0, 0, 1, 1. With
# F = I = W = 1 its first I can start at 3, when rank 1 has done F and I. When must rank 1 give its second I, so that
# rank 0 goes on without a gap, and what may rank 1 put off?


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
        for micro in range(m):
            if warm + micro < m:
                steps.append(("F", rank, warm + micro))
            steps.append(("I", rank, micro))
            if micro >= rank:  # so many W may wait: with them p are alive
                steps.append(("W", rank, micro - rank))
        steps += [("W", rank, micro) for micro in range(max(m - rank, 0), m)]
        order.append(steps)
    return order
    # END SOLUTION


# %% 12.zero_bubble check tags=["check", "12.zero_bubble"]
check("12.zero_bubble")

# %% [markdown] own zero bubble
# **Look at it**: your order on four ranks, with W as long as I and with W half as long. Which gaps are left, and why
# can no W fill the first ones?

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
# ## 12.dualpipe: two directions at once
#
# DualPipe keeps two copies of the model. Stages $0 .. p-1$ lie on ranks $0 .. p-1$; of the second copy, stage $p + k$
# lies on rank $p - 1 - k$. Micro-batches $0 .. m/2-1$ pass the first copy, down the ranks, the others the second, up.
# Where the two streams have met, a rank runs a forward of one copy together with a backward of the other, as one step:
# F&B. Write `dualpipe(p, m)`.
#
# | | |
# |---|---|
# | `p`, `m` | ranks and micro-batches, even whole numbers, $p \ge 2$, $m \ge 2p$ |
# | result | for each rank the list of its steps |
# | a step | `(kind, stage, micro)`, kind "F", "B", "I" or "W"; or a pair of F and B: `(("F", 0, 5), ("B", 7, 9))` |
#
# A micro-batch needs, on each stage of its copy, F and either B or both I and W. F needs F of the stage before, B and I
# need F of their own stage and B or I of the next, W needs I of its own stage. A pair starts when both can.
#
# **What is asked.** Many orders will do. On no rank are more than $p + 1$ activations alive at once. On each rank at
# least $m - \frac{3}{2}p$ steps are pairs. No rank is idle for longer than $(\frac{p}{2} - 1)(F\&B + B - 3W)$, the
# formula of DeepSeek-V3's report, with several costs of which $I \ge F \ge W$ and F&B is at most $F + B$.
#
# **One way to get there**, in eight phases. Call the stage on a rank that its first micro-batches come to *near*, the
# other one *far*: on rank 0 near is stage 0, and far is stage $2p - 1$, where the second copy ends. The lower half of
# the ranks mirrors the upper. Each phase repeats its steps, and each step takes the next micro-batch of its stage. Here
# is how often, on the upper half of 8 ranks:
#
# | phase | what is repeated | rank 0 | 1 | 2 | 3 |
# |---|---|---|---|---|---|
# | 1 | F near | 6 | 4 | 2 | 0 |
# | 2 | F near, F far | 1 | 2 | 3 | 4 |
# | 3 | I far, W, F far | 3 | 2 | 1 | 0 |
# | 4 | F near & B far, F far & B near | ? | ? | ? | ? |
# | 5 | B far, F far & B near | 3 | 2 | 1 | 0 |
# | 6 | B far, B near; the second half of them all as I | 1 | 2 | 3 | 4 |
# | 7 | W, I near | 3 | 2 | 1 | 0 |
# | 8 | W | 1 | 2 | 3 | 4 |
#
# W takes the oldest I on its rank that has none yet. Phase 4 alone depends on $m$. Every stage must get $m / 2$
# forwards: that decides how long it is.
#
# **A small example.** `dualpipe(2, 4)`, rank 0, with the number of the stage: `F0`, `F3`, then F0 & B3, F3 & B0, then
# `B3`, `I0`, `W0`. The micro-batches are 0, 2; 1 & 2, 3 & 0; 3, 1, 1. What does rank 1 do?


# %% 12.dualpipe tags=["answer", "12.dualpipe"]
def dualpipe(p: int, m: int) -> list[list[tuple]]:
    """For each rank its steps: (kind, stage, micro), or a pair (("F", ...), ("B", ...)).

    >>> dualpipe(2, 4)[0][2]
    (('F', 0, 1), ('B', 3, 2))
    """

    # BEGIN SOLUTION
    def steps_of(rank):
        down, up = rank, 2 * p - 1 - rank
        near, far = (down, up) if rank < p // 2 else (up, down)
        end = min(rank, p - 1 - rank)
        turn = p // 2 - 1 - end
        forwards, backwards, owed = {up: m // 2}, {up: m // 2}, []

        def take(kind, stage):
            count = forwards if kind == "F" else backwards
            micro = count.get(stage, 0)
            count[stage] = micro + 1
            if kind == "I":
                owed.append(("W", stage, micro))
            return kind, stage, micro

        for _ in range(2 * turn):
            yield take("F", near)
        for _ in range(end + 1):
            yield from (take("F", near), take("F", far))
        for _ in range(turn):
            yield from (take("I", far), owed.pop(0), take("F", far))
        for _ in range(m // 2 - 2 * turn - end - 1):
            yield take("F", near), take("B", far)
            yield take("F", far), take("B", near)
        for _ in range(turn):
            yield take("B", far)
            yield take("F", far), take("B", near)
        for at in range(2 * (end + 1)):
            yield take("B" if at <= end else "I", near if at % 2 else far)
        for _ in range(turn):
            yield from (owed.pop(0), take("I", near))
        yield from owed

    return [list(steps_of(rank)) for rank in range(p)]
    # END SOLUTION


# %% 12.dualpipe check tags=["check", "12.dualpipe"]
check("12.dualpipe")

# %% [markdown] own dualpipe
# **Look at it**: your order on eight ranks, where a pair takes as long as its parts and where it takes three quarters
# of that, because one part computes while the other waits for its tokens. Find the triangles in which the two streams
# have not met yet.

# %% your dualpipe drawn
runs = {}
with lesson.when_written():
    own = dualpipe(8, 16)
    for part in (1.0, 0.75):
        runs[f"yours, F&B = {part:g} (F + B)"] = lesson.simulated(
            own, m=16, layout="two ways", together=part
        )
lesson.schedule_figure(runs) if runs else None

# %% [markdown] after dualpipe
# <details><summary>The small example</summary>
#
# The mirror image: stages 2, 1 in place of 0, 3, and micro-batches 2, 3 in place of 0, 1, and the other way about:
# `F2`, `F1`, then F2 & B1, F1 & B2, then `B1`, `I2`, `W2`, with the micro-batches 2, 0; 3 & 0, 1 & 2; 1, 3, 3.
#
# </details>

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
