# %% [markdown] top
# # Lab 12: pipeline schedules
#
# **Seven exercises.** You write three schedules, from one-forward-one-backward to DualPipe; what finds a deadlock
# before ranks hang; what says when each step runs and what memory it takes; and a search for the way to cut a model.
# At the end your orders train GPT-2 on four ranks.
#
# - **First**: lesson 12. It has the ideas; each statement says what else it needs.
# - **Time**: three parts, one for each sitting of the lesson. As a guess, not from a stopwatch: 120, 80 and 60 minutes.
# - **Judged by what they do**: no list of steps is compared with another. Any order that is whole, small and quick
#   enough is right.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("12.one_f_one_b")` gives three hints of growing strength. `solution("12.one_f_one_b")` asks first.

# %% imports tags=["setup"]
import math
from itertools import combinations, pairwise, product

from gpu_utils import CHIPS, check, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: one order, and what it costs

# %% [markdown] statement of one_f_one_b
# ## 12.one_f_one_b: one forward, one backward
#
# A model is cut into `p` stages of consecutive layers, stage r on rank r. A step of training has `m` micro-batches.
# Write `one_f_one_b(p, m)`: the order in which each rank does its forwards and backwards.
#
# | | |
# |---|---|
# | `p`, `m` | whole numbers, 1 or more; `m` may be less than `p` |
# | result | a list that has, for each rank, the list of its steps in their order |
# | a step | `(kind, stage, micro)`: `"F"` or `"B"`; the stage, which is the rank; the micro-batch, 0 to m - 1 |
#
# A rank does its steps one after the other. Each waits for what it needs: F on rank r for F of the same micro-batch on
# rank r - 1; B on rank r for its own F and for B on rank r + 1. No list of steps is compared: the check judges what
# your order does.
#
# - **Whole**: every rank does F and B of every micro-batch, once, and nobody waits for ever.
# - **Small**: rank r holds the activations of at most $\min(p - r, m)$ micro-batches at once. They are alive from the
#   start of F until the end of B.
# - **Quick**: where F takes $F$ seconds on every stage and B takes $B$, the step takes $(m + p - 1)(F + B)$ seconds.
#
# **A small example.** In `one_f_one_b(2, 3)` the last rank turns round at once: F0 B0 F1 B1 F2 B2, by the numbers of
# the micro-batches. Rank 0 may hold two. What does it do while rank 1 is at its first backward?
#
# **A puzzle.** GPipe, all forwards first, takes the same time. What has been won?


# %% 12.one_f_one_b tags=["answer", "12.one_f_one_b"]
def one_f_one_b(p: int, m: int) -> list:
    """For each rank the list of its steps, ("F" or "B", stage, micro).

    >>> one_f_one_b(2, 3)[1][:3]
    [('F', 1, 0), ('B', 1, 0), ('F', 1, 1)]
    """
    # BEGIN SOLUTION
    order = []
    for rank in range(p):
        ahead = min(p - 1 - rank, m)
        steps = [("F", rank, micro) for micro in range(ahead)]
        for micro in range(m - ahead):
            steps += [("F", rank, ahead + micro), ("B", rank, micro)]
        steps += [("B", rank, micro) for micro in range(m - ahead, m)]
        order.append(steps)
    return order
    # END SOLUTION


# %% 12.one_f_one_b check tags=["check", "12.one_f_one_b"]
check("12.one_f_one_b")

# %% [markdown] own one_f_one_b
# **Why it matters.** Below: GPipe, and your order, for four ranks and eight micro-batches. Both are idle for the same
# time; the numbers at the right edge differ. Memory is what lets `m` grow, and a larger `m` is what makes the bubble a
# small share.
#
# <details><summary>The small example and the puzzle</summary>
#
# Rank 0 does F0 F1 B0 F2 B1 B2: while rank 1 is at B0, it has F1 behind it and waits; the gradient of micro-batch 0 is
# the next thing that comes. The puzzle: memory. Rank r holds p - r micro-batches, and with GPipe all m of them.
#
# </details>

# %% your one_f_one_b
runs = {"GPipe": lesson.scheduled("GPipe", 4, 8)}
with lesson.when_written():
    runs["1F1B, yours"] = lesson.simulated(one_f_one_b(4, 8), 8)
lesson.schedule_figure(runs)

# %% [markdown] statement of validate
# ## 12.validate: would ranks hang?
#
# Ranks that wait for each other say nothing: a job stands still until a watchdog ends it. Write
# `validate(order, places, chains, micros, limit)`, which finds out on paper what is wrong with an order.
#
# | | |
# |---|---|
# | `order` | for each rank the list of its steps. A step is an action, or a pair of actions that run together |
# | an action | `(kind, stage, micro)`, kind `"F"`, `"B"`, `"I"` or `"W"`; a pair: `(("F", 3, 5), ("B", 3, 2))` |
# | `places` | for each stage, the rank that has it |
# | `chains` | lists of stages: what a micro-batch passes, in that order. Each stage is in one chain |
# | `micros` | for each chain, the list of the micro-batches that pass it |
# | `limit` | the most activations that a rank may hold at once, each of one stage and one micro-batch |
# | result | `None` if nothing is wrong, else `(reason, [(rank, step), ...])`; steps are counted from 0 |
#
# I is the gradient of a stage's input, W are the gradients of its weights, and B does both. So each stage has three
# **parts** to do for each micro-batch of its chain: F, I and W. Look for these, in this order, and return what you
# find first:
#
# | reason | what it means | the places |
# |---|---|---|
# | `"stray"` | an action whose stage is not on this rank or not anywhere, or whose micro-batch does not pass it | one |
# | `"twice"` | an action that does a part which an earlier step of its rank has done | one |
# | `"missing"` | a part is never done | one: (rank of the stage, number of the steps of that rank) |
# | `"deadlock"` | ranks wait for ever | the ring of waits, see below |
# | `"memory"` | during this step the rank holds more than `limit` activations | one |
#
# Go through the ranks from 0 on, and through the steps of each from 0 on: the first place counts. `"stray"` and
# `"twice"` are looked for in the same walk.
#
# **Who waits for what.** F needs F of the stage before, in its chain. I and B need F of their own stage, and the I
# part of the stage behind. W needs I of its own stage. A step begins when all that its actions need was done in
# earlier steps, by whichever rank; the actions of a pair cannot use each other. A rank does its steps in their order.
#
# **A ring**: `[(rank, step), ...]`, each rank with the step that it cannot begin. Each needs something of the rank that
# stands next, and the last one of the first. It may begin anywhere. A rank that waits for itself is a ring of one.
# Ranks that hang only because others do are no part of it.
#
# **Memory**: an activation is alive from the start of F until the end of B, or of W. A pair of F and B holds both.
#
# **A small example**: two ranks, two micro-batches, in the docstring. Rank 0 wants its gradient before it sends a
# second forward; rank 1 wants two forwards before it sends a gradient.


# %% 12.validate tags=["answer", "12.validate"]
def validate(order: list, places: list, chains: list, micros: list, limit: int):
    """None, or what is wrong and where: (reason, [(rank, step), ...]).

    >>> order = [
    ...     [("F", 0, 0), ("B", 0, 0), ("F", 0, 1), ("B", 0, 1)],
    ...     [("F", 1, 0), ("F", 1, 1), ("B", 1, 0), ("B", 1, 1)],
    ... ]
    >>> validate(order, [0, 1], [[0, 1]], [[0, 1]], 2)
    ('deadlock', [(0, 1), (1, 1)])
    """
    # BEGIN SOLUTION
    parts = {"F": "F", "I": "I", "W": "W", "B": "IW"}
    steps = [[[s] if isinstance(s[0], str) else s for s in own] for own in order]
    work = {(s, m) for at, own in enumerate(chains) for s in own for m in micros[at]}
    before = {b: a for chain in chains for a, b in pairwise(chain)}
    after = {a: b for b, a in before.items()}

    # the rank of each part that is done; what has no place there, is done twice, is never done
    where = {}
    for rank, own in enumerate(steps):
        for at, step in enumerate(own):
            for kind, stage, micro in step:
                if (stage, micro) not in work or places[stage] != rank:
                    return "stray", [(rank, at)]
                for part in parts[kind]:
                    if (part, stage, micro) in where:
                        return "twice", [(rank, at)]
                    where[part, stage, micro] = rank
    lost = [places[s] for s, m in work for part in "FIW" if (part, s, m) not in where]
    if lost:
        return "missing", [(min(lost), len(order[min(lost)]))]

    # an executor that waits
    def needs(kind, stage, micro):
        if kind == "F" and stage in before:
            yield "F", before[stage], micro
        if kind in "IB":
            yield "F", stage, micro
            if stage in after:
                yield "I", after[stage], micro
        if kind == "W":
            yield "I", stage, micro

    done, pointer = set(), [0 for _ in order]

    def lacking(rank):
        step = steps[rank][pointer[rank]]
        return [need for action in step for need in needs(*action) if need not in done]

    def hangs(rank):
        return pointer[rank] < len(steps[rank])

    moved = True
    while moved:
        moved = False
        for rank in range(len(order)):
            while hangs(rank) and not lacking(rank):
                for kind, stage, micro in steps[rank][pointer[rank]]:
                    done |= {(part, stage, micro) for part in parts[kind]}
                pointer[rank] += 1
                moved = True
    path = [rank for rank in range(len(order)) if hangs(rank)][:1]
    while path:
        behind = where[lacking(path[-1])[0]]
        if behind in path:
            ring = path[path.index(behind) :]
            return "deadlock", [(rank, pointer[rank]) for rank in ring]
        path.append(behind)

    for rank, own in enumerate(steps):
        alive = 0
        for at, step in enumerate(own):
            kinds = [kind for kind, _, _ in step]
            alive += kinds.count("F")
            if alive > limit:
                return "memory", [(rank, at)]
            alive -= kinds.count("B") + kinds.count("W")
    return None
    # END SOLUTION


# %% 12.validate check tags=["check", "12.validate"]
check("12.validate")

# %% [markdown] own validate
# **Why it matters.** Your `validate` on your own 1F1B, then on the same with one thing changed: rank 1 wants a gradient
# one step earlier, rank 2 wants a forward one step earlier. On either rank alone that is a harmless change. Four real
# ranks would stand still, all of them; the ring names the two to look at.

# %% your validate
found = {}
with lesson.when_written():
    order = one_f_one_b(4, 6)
    shape = [0, 1, 2, 3], [[0, 1, 2, 3]], [list(range(6))]
    found["your 1F1B"] = validate(order, *shape, 4)
    found["the same, with room for three"] = validate(order, *shape, 3)
    order[1].insert(2, order[1].pop(3))
    order[2].insert(2, order[2].pop(3))
    found["two ranks, a step each"] = validate(order, *shape, 4)
lesson.table({name: str(wrong) for name, wrong in found.items()}, first="order")

# %% [markdown] statement of bubble
# ## 12.bubble: a simulator
#
# Write `bubble(order, places, chains, costs, link, together)`: when each step starts and ends, and what share of the
# ranks' time is idle. All orders are whole: what `validate` looks for does not occur.
#
# | | |
# |---|---|
# | `order`, `places`, `chains` | as for `validate` |
# | `costs` | for each stage `(F, I, W)`: what each part takes, in seconds. B takes I + W |
# | `link` | seconds from the end of a step until another rank has what it made; on the same rank 0 |
# | `together` | a pair takes `together` times the sum of its two actions, and both start and end with it |
# | result | `{"times": ..., "seconds": ..., "idle": ..., "bubble": ...}` |
#
# - `times`: for each rank the list of `(start, end)` of its steps. A step starts when the rank's last step has ended
#   and all that it needs is there. The first ones start at 0. Sending and receiving take no time of the ranks.
# - `seconds`: when the last step of any rank ends.
# - `idle`: for each rank the seconds from 0 to `seconds` in which it does no step.
# - `bubble`: the idle share of all ranks' time, from 0 to 1.
#
# What a step needs is the same as in `validate`.
#
# **A small example**: two ranks, one micro-batch, `costs` of `(2, 1, 1)` and `(3, 2, 1)`, a link of 0.5. F runs from 0
# to 2, then on rank 1 from 2.5 to 5.5, B there until 8.5; B on rank 0 from 9 to 11. Rank 0 is idle for 7 seconds of
# 11, rank 1 for 5: the bubble is 12/22.
#
# **A puzzle.** The formula for 1F1B says that each rank is idle for $(p - 1)(F + B)$. With a link of 0.25, does each
# rank wait for $2 (p - 1) \cdot 0.25$ more, once down the ranks and once back?


# %% 12.bubble tags=["answer", "12.bubble"]
def bubble(
    order: list,
    places: list,
    chains: list,
    costs: list,
    link: float,
    together: float,
) -> dict:
    """Start and end of each step, seconds of all, idle seconds by rank, idle share.

    >>> order = [[("F", 0, 0), ("B", 0, 0)], [("F", 1, 0), ("B", 1, 0)]]
    >>> costs = [(2.0, 1.0, 1.0), (3.0, 2.0, 1.0)]
    >>> bubble(order, [0, 1], [[0, 1]], costs, 0.5, 1.0)["seconds"]
    11.0
    """
    # BEGIN SOLUTION
    parts = {"F": "F", "I": "I", "W": "W", "B": "IW"}
    before = {b: a for chain in chains for a, b in pairwise(chain)}
    after = {a: b for b, a in before.items()}

    def needs(kind, stage, micro):
        """What other stages make: a rank's own parts come in the order of its list."""
        if kind == "F" and stage in before:
            yield "F", before[stage], micro
        if kind in "IB" and stage in after:
            yield "I", after[stage], micro

    ended, times, free = {}, [[] for _ in order], [0.0 for _ in order]
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(order):
            for step in steps[len(times[rank]) :]:
                actions = [step] if isinstance(step[0], str) else step
                wanted = [need for action in actions for need in needs(*action)]
                if any(need not in ended for need in wanted):
                    break
                start, takes = free[rank], 0.0
                for need in wanted:
                    delay = link if places[need[1]] != rank else 0.0
                    start = max(start, ended[need] + delay)
                made = [(part, s, m) for kind, s, m in actions for part in parts[kind]]
                for part, stage, _ in made:
                    takes += costs[stage]["FIW".index(part)]
                free[rank] = start + takes * (together if len(actions) > 1 else 1.0)
                times[rank].append((start, free[rank]))
                ended.update(dict.fromkeys(made, free[rank]))
                moved = True
    seconds = max(free)
    idle = [seconds - sum(end - start for start, end in own) for own in times]
    share = sum(idle) / (len(order) * seconds)
    return {"times": times, "seconds": seconds, "idle": idle, "bubble": share}
    # END SOLUTION


# %% 12.bubble check tags=["check", "12.bubble"]
check("12.bubble")

# %% [markdown] own bubble
# **Why it matters.** A formula holds for stages that are alike and links that take no time. The table has your 1F1B by
# your simulator, for `p` = 4 and `m` = 8, where F, I and W take 1 unit each; the second column is the formula.
#
# <details><summary>The puzzle</summary>
#
# No. The first forward's way down and the last gradient's way back are 6 links, 1.5 units. But in the steady state,
# too, a rank sends a forward and then waits for a gradient that was made on the other side of the link. The table says
# how much comes to 1.5.
#
# </details>

# %% your bubble
rows, spans = {}, {}
with lesson.when_written():
    order, line = one_f_one_b(4, 8), ([0, 1, 2, 3], [[0, 1, 2, 3]])
    even, slow = [(1.0, 1.0, 1.0)] * 4, [(1.0, 1.0, 1.0)] * 3 + [(1.5, 1.5, 1.5)]
    for name, costs, link in (
        ("even stages", even, 0.0),
        ("a link of 0.25", even, 0.25),
        ("the last stage takes 1.5 times as long", slow, 0.0),
    ):
        own = bubble(order, *line, costs, link, 1.0)
        spans[name] = lesson.timed(order, own["times"], 8)
        rows[name] = {"idle by the formula": 9.0} | {
            f"rank {rank}": idle for rank, idle in enumerate(own["idle"])
        }
lesson.table(rows, first="idle units of each rank")

# %% your timelines
lesson.schedule_figure(spans) if spans else None

# %% [markdown] decision of layers
# **A decision.** 16 layers on four ranks, and the last stage has the LM head too, which takes as long as two layers. A
# layer takes F = I = W = 1 unit. With 4 layers on each rank the last one has the work of 6, and the others wait for
# it. Which split would you take: 5, 4, 4, 3, or 4, 4, 5, 3, or 5, 5, 4, 2, or another one? In each of these three the
# slowest stage has the work of 5 layers. And would you take the same where a link takes a unit? Decide, then run the
# cell: it tries all splits with your function.

# %% your split
rows = {}
with lesson.when_written():
    order, line = one_f_one_b(4, 8), ([0, 1, 2, 3], [[0, 1, 2, 3]])
    splits = [one for one in product(range(1, 8), repeat=4) if sum(one) == 16]
    for link in (0.0, 0.25, 1.0):
        seconds = {}
        for split in splits:
            costs = [(n, n, n) for n in (*split[:3], split[3] + 2)]
            seconds[split] = bubble(order, *line, costs, link, 1.0)["seconds"]
        best = min(seconds, key=seconds.get)
        rows[f"link of {link:g}"] = {"the best": f"{best}: {seconds[best]:g}"} | {
            str(split): seconds[split]
            for split in ((4, 4, 4, 4), (5, 4, 4, 3), (4, 4, 5, 3), (5, 5, 4, 2))
        }
lesson.table(rows, first="units of a step")

# %% [markdown] which split
# The slowest stage alone does not decide: splits with the same slowest stage differ, by where it is, and by what stands
# beside it. And a slower link asks for another split. That is why a schedule is simulated, with the times and links of
# the machine, before it is chosen.

# %% [markdown] statement of memory
# ## 12.memory: what is alive, and what to compute again
#
# Write `memory(order, places, alive, left, entry, weights, budget)`: how many bytes each rank needs at its peak, and
# which stages must compute their forward again so that every rank fits into its memory.
#
# | | |
# |---|---|
# | `order`, `places` | as for `validate`; all orders are whole |
# | `alive` | for each stage, bytes that a forward keeps of one micro-batch, for its backward |
# | `left` | for each stage, bytes of these that stay after I, for W |
# | `entry` | for each stage, bytes of its input, of one micro-batch; they are part of `alive` |
# | `weights` | for each stage, bytes of weights, gradients and optimizer states: there all the time |
# | `budget` | bytes of each rank |
# | result | `{"peak": ..., "recompute": ...}` |
#
# - F adds `alive` bytes when it starts. B frees them when it ends. Or I frees all but `left` of them when it ends, and
#   W frees the rest. During a pair both of its actions have their bytes.
# - `peak`: for each rank the most bytes during any of its steps, weights and all, **with nothing computed again**.
# - A stage that is computed again keeps only `entry` bytes of a micro-batch when F is done (and holds no more during
#   F). The start of its backward, B or I, brings the others back: `alive` bytes in all, for this one micro-batch, which
#   are then freed as above.
# - `recompute`: a list of stages that do so, as few as can be, with which every rank needs at most `budget` bytes; `[]`
#   where all fit as they are. Where several choices are as few, any of them. `None` where no choice is enough.
#
# **A small example** of two ranks with one stage each:
#
# | rank | steps | `alive` | `left` | `entry` | `weights` | peak |
# |---|---|---|---|---|---|---|
# | 0 | F0 F1 B0 B1 | 10 | 4 | 2 | 30 | 30 + 10 + 10 = 50 |
# | 1 | F0 I0 F1 W0 I1 W1 | 8 | 3 | 2 | 40 | 40 + 3 + 8 = 51 |
#
# With a budget of 50 rank 1 is one byte too large. Computed again, its stage holds 2 after F0; 8 during I0; 3 + 2
# during F1; 2 + 8 during I1, W0 being done. What if W0 came last of all?


# %% 12.memory tags=["answer", "12.memory"]
def memory(
    order: list,
    places: list,
    alive: list,
    left: list,
    entry: list,
    weights: list,
    budget: int,
) -> dict:
    """Bytes of each rank at its peak, and the fewest stages to compute again.

    >>> order = [
    ...     [("F", 0, 0), ("F", 0, 1), ("B", 0, 0), ("B", 0, 1)],
    ...     [
    ...         *(("F", 1, 0), ("I", 1, 0), ("F", 1, 1)),
    ...         *(("W", 1, 0), ("I", 1, 1), ("W", 1, 1)),
    ...     ],
    ... ]
    >>> memory(order, [0, 1], [10, 8], [4, 3], [2, 2], [30, 40], 50)
    {'peak': [50, 51], 'recompute': [1]}
    """

    # BEGIN SOLUTION
    def peak(rank, again):
        now = most = 0
        for step in order[rank]:
            freed = 0
            for kind, stage, _ in [step] if isinstance(step[0], str) else step:
                extra = alive[stage] - entry[stage] if stage in again else 0
                if kind == "F":
                    now += alive[stage] - extra
                elif kind == "W":
                    freed = left[stage]
                else:
                    now += extra
                    freed = alive[stage] - (left[stage] if kind == "I" else 0)
            most = max(most, now)
            now -= freed
        return most + sum(weights[s] for s, place in enumerate(places) if place == rank)

    recompute = []
    for rank in range(len(order)):
        own = [stage for stage, place in enumerate(places) if place == rank]
        choices = [some for n in range(len(own) + 1) for some in combinations(own, n)]
        fitting = [some for some in choices if peak(rank, some) <= budget]
        if not fitting:
            recompute = None
            break
        recompute += fitting[0]
    return {
        "peak": [peak(rank, ()) for rank in range(len(order))],
        "recompute": recompute,
    }
    # END SOLUTION


# %% 12.memory check tags=["check", "12.memory"]
check("12.memory")

# %% [markdown] own memory
# **Why it matters.** Below: eight ranks and 24 micro-batches, by your function. As an example, a stage of 1F1B has 8
# layers; a layer keeps 16 tensors of 4,096 tokens and 4,096 numbers in bf16, of which 5 stay for W, and has 200 million
# weights of 16 bytes each, with gradients and optimizer states. A rank of DualPipe has two such stages, since it has
# two copies of the model; one of ZBV has two stages of half the layers.
#
# Before you run it: which of the four needs most on rank 0, which on rank 7? And which stages must be computed again on
# an H100, which on an MI300X, with more than twice the memory?
#
# <details><summary>The small example</summary>
#
# If W0 came last of all, 3 bytes of micro-batch 0 would still be there during I1: 3 + 8 = 11, the same 51 as before,
# and no choice would fit: None.
#
# </details>

# %% your memory
rows = {}
tensor = 4096 * 4096 * 2
budgets = {chip: CHIPS[chip].memory_gb.value for chip in ("H100", "MI300X")}
for name in ("1F1B", "ZB-H1", "ZBV", "DualPipe"):
    known = lesson.scheduled(name, 8, 24).schedule
    layers = 4 if name == "ZBV" else 8
    sizes = [
        [size] * len(known.places)
        for size in (
            *(16 * layers * tensor, 5 * layers * tensor, tensor),
            200_000_000 * 16 * layers,
        )
    ]
    with lesson.when_written():
        own = {
            chip: memory(known.order, known.places, *sizes, int(gb * 1e9))
            for chip, gb in budgets.items()
        }
        peaks = [round(peak / 1e9, 1) for peak in own["H100"]["peak"]]
        rows[name] = {"rank 0, GB": peaks[0], "rank 7, GB": peaks[7]} | {
            f"computed again, {gb:g} GB": str(own[chip]["recompute"])
            for chip, gb in budgets.items()
        }
lesson.table(rows, first="schedule")

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
# formula of DeepSeek-V3's report, with several costs of which $I \ge F \ge W$ and F&B is from $B$ to $F + B$.
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
# | 6 | B far, B near; of all these actions the second half as I | 1 | 2 | 3 | 4 |
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
# FLOP/s are guesses, about 40% of the peak. Before you run it: which of the two needs tensor parallelism?

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
# model it takes 0.3% longer than the best. There the best choices with pipelines of 1, 2, 4, 8, 16 and 32 are within
# 0.5% of each other: this model cannot tell them apart. What the model leaves out is more than that: FP8, DualPipe, the
# embedding and the head, the sends between stages.

# %% [markdown] payoff
# ## The payoff: your orders train GPT-2 on four ranks
#
# Four processes, a stage of two layers each, eight micro-batches. Each rank does the steps of your order one after the
# other: real activations go down the ranks, real gradients come back, `I` and `W` are PyTorch's own two halves of a
# backward. A step computes for about a millisecond and then sleeps until 20 ms are over, a backward `B` until 40, in
# place of a busy GPU: the four share the cores of your machine. A message takes 2 ms.
#
# Two things should come out. The gradients are those of the whole model, but for the order of float32 sums. And the
# time is the one that a simulator gives on paper, and a little more. Before you run it: a rank of 1F1B is idle for
# `(p - 1) (F + B)`, here 3 times 60 ms. For how long by the formula of your zero-bubble order, and how much sooner does
# a pass end?

# %% your pipeline
found = {}
with lesson.when_written():
    found["your 1F1B"] = lesson.pipelined(one_f_one_b(4, 8), 8)
    found["your zero bubble"] = lesson.pipelined(zero_bubble(4, 8), 8)
lesson.table({name: run.rows for name, run in found.items()}, first="order")

# %% [markdown] runs and paper
# Both as they ran, above each other, and the second one on paper.

# %% runs and paper figure
runs = {f"{name}, measured": run.measured for name, run in found.items()}
runs |= {f"{name}, on paper": run.simulated for name, run in found.items()}
lesson.schedule_figure(runs, unit="s") if runs else None

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
# You have written the orders by which the largest models are trained, what checks them and what prices them, and seen
# them run. Unit 13 asks where the time of a real step goes.

# %% progress
progress()
