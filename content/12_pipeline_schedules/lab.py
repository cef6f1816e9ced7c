# %% [markdown] top
# # Lab 12: pipeline schedules
#
# **Seven exercises.**
#
# - **First**: lesson 12. It has the ideas; each statement says what else it needs.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("12.one_f_one_b")` gives three hints of growing strength. `solution("12.one_f_one_b")` asks first.

# %% imports tags=["setup"]
import math

import torch
from torch import Tensor

from gpu_utils import CHIPS, check, hint, lesson, progress, solution

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
# ## 12.choose: degrees for a cluster
#
# A cluster and a model are described in numbers. Write `choose(cluster, model)`: into how many parts is what divided?
# It returns `{"pipeline": p, "expert": e, "data": d, "tensor": t}`, the fastest choice that fits into memory, or `None`
# where none does. A step may take up to 1% longer than with the best choice.
#
# | `cluster` | | `model` | |
# |---|---|---|---|
# | `chips` | in all | `layers`, `width` | of the model |
# | `node` | chips of a node | `dense` | weights of a layer outside of its experts |
# | `memory` | bytes of a chip | `experts`, `expert` | experts of a layer, weights of one; 0 for none |
# | `flops` | FLOP/s that a chip reaches | `active`, `nodes` | experts of a token; it goes to at most so many nodes |
# | `inside` | bytes/s of a chip to its node | `kept` | bytes of activations of a token and layer |
# | `across` | bytes/s of a chip to other nodes | `tokens`, `micro` | of a step; of a micro-batch |
#
# **Rules.** `p d t = chips`; `p` is at most `layers`; `e` divides `d` and `experts`, and is 1 without experts; the
# micro-batches of a rank, `m = tokens / (d micro)`, are a whole number.
#
# **Memory**, bytes. The longest stage has `L = ceil(layers / p)` layers. A rank holds `A = L dense / t` weights, and
# `X = L experts expert / (e t)` of experts. A weight takes 6 bytes (bf16, its gradient in float32) and its optimizer
# 12, which are shared out over the ranks that hold the same weights: `d` for `A`, `d / e` for `X`. The schedule is
# 1F1B, so the first stage keeps activations of `min(p, m)` micro-batches:
#
# `6 (A + X) + 12 (A / d + X e / d) + L min(p, m) micro kept / t`
#
# **Time**, seconds. For one micro-batch, with `M = 4 L micro width 2` bytes (four messages in each layer, in bf16):
#
# | | |
# |---|---|
# | compute | `6 L (dense + active expert) micro / (t flops)` |
# | all-reduces of the tensor degree | `M 2 (t - 1) / t / link(t)` |
# | exchange of the experts | `M max(active (e - 1) / e / inside, min(active, nodes, n) (n - 1) / n / across)` |
# | sum of the gradients, once in a step | `8 ((d - 1) / d A + (q - 1) / q X) / link(d t)`, where `q = d / e` |
#
# `n = ceil(e t / node)` nodes hold all experts of a layer. `link(r)` is `inside` where `r` neighbouring ranks fit into
# a node, `r <= node`, and `across` otherwise. The exchange of one micro-batch runs beside the compute of another, so
# the longer one counts:
#
# `(m + p - 1) (max(compute, exchange) + all-reduces) + sum of the gradients`
#
# **A small example.** Four chips in two nodes, 2.2 GB each; 4 layers without experts. The cell below the answer has all
# its numbers. With `e = 1`:
#
# | p, d, t | memory, GB | seconds | |
# |---|---|---|---|
# | 1, 4, 1 | 2.947 | 0.3166 | |
# | 1, 2, 2 | 1.773 | 0.2581 | fits |
# | 1, 1, 4 | 1.187 | 0.8409 | fits |
# | 2, 2, 1 | 2.347 | 0.2252 | the fastest does not fit |
# | 2, 1, 2 | 1.473 | 0.2317 | **fits** |
# | 4, 1, 1 | 2.047 | 0.2335 | fits, 0.8% slower: right as well |


# %% 12.choose tags=["answer", "12.choose"]
def choose(cluster: dict, model: dict) -> dict | None:
    """The degrees of the fastest choice that fits; None where none does."""
    # BEGIN SOLUTION
    chips, experts = cluster["chips"], model["experts"]

    def link(ranks):
        return cluster["inside"] if ranks <= cluster["node"] else cluster["across"]

    def divisors(number):
        return [k for k in range(1, number + 1) if number % k == 0]

    best = None
    for p in divisors(chips):
        for t in divisors(chips // p):
            d = chips // p // t
            m, left = divmod(model["tokens"], d * model["micro"])
            if left or p > model["layers"]:
                continue
            for e in divisors(d) if experts else [1]:
                if experts % e:
                    continue
                layers = math.ceil(model["layers"] / p)
                dense = layers * model["dense"] / t
                routed = layers * experts * model["expert"] / (e * t)
                kept = layers * min(p, m) * model["micro"] * model["kept"] / t
                states = dense / d + routed * e / d
                if 6 * (dense + routed) + 12 * states + kept > cluster["memory"]:
                    continue
                message = 4 * layers * model["micro"] * model["width"] * 2
                weights = model["dense"] + model["active"] * model["expert"]
                flop = 6 * layers * weights * model["micro"] / t
                reduces = message * 2 * (t - 1) / t / link(t)
                n = math.ceil(e * t / cluster["node"])
                near = model["active"] * (e - 1) / e / cluster["inside"]
                far = min(model["active"], model["nodes"], n) * (n - 1) / n
                exchange = message * max(near, far / cluster["across"])
                slot = max(flop / cluster["flops"], exchange) + reduces
                q = d // e
                total = 8 * ((d - 1) / d * dense + (q - 1) / q * routed) / link(d * t)
                seconds = (m + p - 1) * slot + total
                if best is None or seconds < best[0]:
                    best = seconds, {"pipeline": p, "expert": e, "data": d, "tensor": t}
    return best[1] if best else None
    # END SOLUTION


# %% 12.choose check tags=["check", "12.choose"]
check("12.choose")

# %% [markdown] own choice
# **Three clusters.** Your function on the small example, and on a model of the size of DeepSeek-V3 (231 million dense
# weights in a layer, 256 experts of 44 million, at most 4 nodes for a token) on 2,048 chips. Once they have 80 GB and
# the rates of an H800's links, 160 and 50 GB/s
# (source: [DeepSeek-V3 report](https://arxiv.org/abs/2412.19437), section 3.2.2). Once they have the memory of an
# MI300X and its 7 links, each at the rate that RCCL reaches of it: both figures come from the course's registry. The
# FLOP/s are guesses, about 40% of the peak. Before you run it: which of the two needs the longer pipeline?

# %% your choice
small = {"layers": 4, "width": 2048, "dense": 50_000_000, "kept": 70_000}
small |= {"experts": 0, "expert": 0, "active": 0, "nodes": 1}
small |= {"tokens": 65_536, "micro": 4096}
large = {"layers": 61, "width": 7168, "dense": 231_000_000, "kept": 143_360}
large |= {"experts": 256, "expert": 44_040_192, "active": 8, "nodes": 4}
large |= {"tokens": 62_914_560, "micro": 4096}
four = {"chips": 4, "node": 2, "memory": 2.2e9, "flops": 100e12}
four |= {"inside": 100e9, "across": 10e9}
h800 = {"chips": 2048, "node": 8, "memory": 80e9}
h800 |= {"flops": 400e12, "inside": 160e9, "across": 50e9}
mi300x = h800 | {"memory": CHIPS["MI300X"].memory_gb.value * 1e9}
mi300x |= {"flops": 500e12}
mi300x |= {"inside": 7 * lesson.LINKS["xGMI of MI300X"].bandwidth}
rows = {}
with lesson.when_written():
    rows["the small example"] = choose(four, small)
    rows["like V3, on H800"] = choose(h800, large)
    rows["like V3, on MI300X"] = choose(mi300x, large)
lesson.table(rows, first="model and cluster")

# %% [markdown] what v3 chose
# The report's own choice on 2,048 H800: a 16-way pipeline, 64-way expert parallelism over 8 nodes, ZeRO-1 data
# parallelism and no tensor parallelism (source: [V3 report](https://arxiv.org/abs/2412.19437), section 3.2). By this
# model it takes 0.3% longer than the best. What the model leaves out is more than that: FP8, DualPipe, the embedding
# and the head, the sends between stages.

# %% [markdown] payoff
# ## The payoff: your orders train GPT-2 on four ranks
#
# Four processes, a stage of two layers each, eight micro-batches. Each rank does the steps of your order one after the
# other: real activations go down the ranks, real gradients come back, `I` and `W` are PyTorch's own two halves of a
# backward. A step computes for about a millisecond and then sleeps until 20 ms are over, a backward `B` until 40, in
# place of a busy GPU: the four share the cores of your machine. A message takes 2 ms.
#
# Two things should come out. The gradients are those of the whole model, but for the order of float32 sums. And the
# time is the one that a simulator gives on paper, and a little more. Before you run it: how many seconds of a pass will
# the zero-bubble order save? (Seven slots of idle time of 60 ms are `p - 1 = 3` of `F + B`; which formula has yours?)

# %% your pipeline
found = {}
with lesson.when_written():
    found["your 1F1B"] = lesson.pipelined(one_f_one_b(4, 8), 8)
    found["your zero bubble"] = lesson.pipelined(zero_bubble(4, 8), 8)
lesson.table({name: run.rows for name, run in found.items()}, first="order")

# %% [markdown] your timelines
# Both as they ran, above each other, and the second one on paper.

# %% your timeline
runs = {f"{name}, measured": run.measured for name, run in found.items()}
runs |= {f"{name}, on paper": run.simulated for name, run in found.items()}
lesson.schedule_figure(runs)

# %% [markdown] your two copies
# And your DualPipe: two copies of the model, one in each direction. At the end of a pass the gradients of each weight
# are summed over the two ranks that hold it. A training without waiting for costs, twenty passes:

# %% your training
rows = {}
with lesson.when_written():
    for name, order, layout in (
        ("your zero bubble", zero_bubble(4, 8), "line"),
        ("your DualPipe", dualpipe(4, 8), "two ways"),
    ):
        run = lesson.pipelined(order, 8, layout, padded=False, steps=20)
        rows[name] = run.rows
lesson.table(rows, first="order")

# %% [markdown] end of the lab
# ## Done
#
# PLACEHOLDER

# %% progress
progress()
