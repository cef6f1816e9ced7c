# %% [markdown] top
# # Lab 11: collectives, dispatch, combine
#
# **Twelve exercises.** Three collectives from messages, three on the price of transfers, three of dispatch and combine,
# and three of a whole step: overlap, stragglers, placement. At the end your own dispatch and combine train the model of
# unit 10 over ranks.
#
# - **First**: lesson 11. It has the ideas; each statement says what else it needs.
# - **Time**: four parts, one for each sitting of the lesson. As a guess, not from a stopwatch: 60 minutes each.
# - **Ranks**: an answer that runs on ranks is called in each of them, in a process of its own, with that rank's
#   arguments. What a rank prints is not shown. A rank that fails is named with its line; ranks that wait for each other
#   are ended when their time is over.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("11.ring_all_reduce")` gives three hints of growing strength. `solution("11.ring_all_reduce")` asks first.

# %% imports tags=["setup"]
import math
import statistics

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpu_utils import CHIPS, check, hint, lesson, progress, solution

# %% [markdown] part of collectives
# ## Part 1: collectives by hand

# %% [markdown] statement of ring_all_reduce
# ## 11.ring_all_reduce: the sum, around a ring
#
# Each of the `n` ranks of a group has a tensor of the same shape. Write `ring_all_reduce(x, group)`: every rank gets
# the sum of all of them. Rank `r` talks to its neighbours in the ring only: `r + 1` and `r - 1`, modulo `n`.
#
# | | |
# |---|---|
# | `x` | float32, any shape, the same on all ranks; maybe empty, maybe not contiguous. It stays as it is |
# | `group` | a process group with 1 to 5 ranks, all or some of the world's |
# | result | float32, shape of `x`: the sum over the group, **with the same bits on every rank** |
# | sent | at most `2 * (n - 1)` pieces of `ceil(numel / n)` elements from each rank |
#
# In a group of ranks 1 and 3, rank 3 has the number 1: `dist.get_rank(group)`, `dist.get_world_size(group)`. A number
# in the group is given to a send as `group=group, group_dst=...`, to a receive as `group=group, group_src=...`.
#
# What is sent must be contiguous. `work = dist.isend(...)` returns at once, `work.wait()` when the data has gone; leave
# the tensor alone in between.
#
# **A small example.** Three ranks, three elements each, so a piece is one element:
#
# | | rank 0 | rank 1 | rank 2 |
# |---|---|---|---|
# | at first | 1 2 3 | 10 20 30 | 100 200 300 |
# | after step 1 of 4 | 1 2 **303** | **11** 20 30 | 100 **220** 300 |
# | after step 2 | 1 **222** 303 | 11 20 **333** | **111** 220 300 |
# | at the end | 111 222 333 | 111 222 333 | 111 222 333 |
#
# In step 1 rank 0 sent its piece 0, rank 1 its piece 1 and rank 2 its piece 2. Which piece does each send in step 2,
# and which in step 3? `hint("11.ring_all_reduce")` gives three hints.
#
# **A puzzle.** Piece 0 was summed as (1 + 10) + 100. Were pieces 1 and 2 summed in the same order of ranks?


# %% 11.ring_all_reduce tags=["answer", "11.ring_all_reduce"]
def ring_all_reduce(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum of x over the group: the same shape, the same bits on all its ranks."""
    # BEGIN SOLUTION
    n, me = dist.get_world_size(group), dist.get_rank(group)
    size = -(-x.numel() // n)
    flat = torch.zeros(n * size)
    flat[: x.numel()] = x.flatten()
    chunks, got = flat.view(n, size), torch.empty(size)

    def pass_on(chunk):
        work = dist.isend(chunk, group=group, group_dst=(me + 1) % n)
        dist.recv(got, group=group, group_src=(me - 1) % n)
        work.wait()

    for step in range(n - 1):
        pass_on(chunks[(me - step) % n])
        chunks[(me - step - 1) % n] += got
    for step in range(n - 1):
        pass_on(chunks[(me + 1 - step) % n])
        chunks[(me - step) % n] = got
    return flat[: x.numel()].view(x.shape)
    # END SOLUTION


# %% tags=["check"]
check("11.ring_all_reduce")

# %% [markdown] why ring_all_reduce
# **Why it matters.** Data-parallel training sums gradients in every step. A rank sends less than two tensors, whether
# there are 4 ranks or 4,000: that is why a ring is the measure of every other algorithm. And equal bits are no luxury:
# ranks whose weights differ in the last bit drift apart, and nothing complains.
#
# <details><summary>The puzzle</summary>
#
# No: piece p is summed in the order p, p + 1, p + 2, ..., so each piece begins with another rank. On one piece all
# ranks agree, since one rank finishes it and the others copy.
#
# </details>

# %% [markdown] statement of hierarchical
# ## 11.hierarchical: most bytes stay in the node
#
# Now ranks live in nodes of `S = node_size` ranks: node 0 has ranks 0 to S - 1, node 1 the next S, and so on, M nodes
# in all. Inside of a node links are fast, between nodes slow. A *rail* is the set of ranks with the same number in
# their node. Write `hierarchical(x, node_size)`: the sum over **all** ranks, in three phases:
#
# 1. reduce-scatter inside of the node: each rank ends with one S-th of the node's sum;
# 2. all-reduce of that part along the rail, with the ranks that hold the same part of other nodes' sums;
# 3. all-gather inside of the node.
#
# | | |
# |---|---|
# | `x` | float32, any shape, the same on all ranks. It stays as it is |
# | `node_size` | S; the world is a multiple of it. S = 1 and S = world are allowed |
# | result | float32, shape of `x`: the sum over all ranks, the same bits on every rank |
# | between nodes | only ranks of one rail talk; each sends at most `2 * (M - 1)` pieces of p elements |
# | inside of a node | each sends at most `2 * (S - 1)` chunks of `M * p` elements; `p = ceil(numel / (S * M))` |
#
# The default group holds all ranks: `dist.get_rank()`, and `dist.isend(tensor, to)` with the rank's number in the
# world.
#
# **A small example.** Two nodes of two ranks, x = [1, 1, 1, 1] times 1, 10, 100, 1000 on ranks 0 to 3. After phase 1
# ranks 0 and 1 hold two elements of 11 each, ranks 2 and 3 two of 1,100. After phase 2 each of the four holds two
# elements of 1,111; after phase 3 all hold four.
#
# **A puzzle.** Which two ranks are a rail of rank 1 here, and could they be ranks 1 and 2?
# `hint("11.hierarchical")` gives three hints.


# %% 11.hierarchical tags=["answer", "11.hierarchical"]
def hierarchical(x: Tensor, node_size: int) -> Tensor:
    """The sum of x over all ranks of nodes of node_size ranks, of the same shape."""
    # BEGIN SOLUTION
    world, me = dist.get_world_size(), dist.get_rank()
    node, local = divmod(me, node_size)
    neighbours = range(node * node_size, (node + 1) * node_size)
    rail = range(local, world, node_size)

    def pass_on(chunk, ring, at):
        got = torch.empty_like(chunk)
        work = dist.isend(chunk, ring[(at + 1) % len(ring)])
        dist.recv(got, ring[at - 1])
        work.wait()
        return got

    def reduce_scatter(chunks, ring, at):  # chunk at + 1 is complete afterwards
        for step in range(len(ring) - 1):
            got = pass_on(chunks[(at - step) % len(ring)], ring, at)
            chunks[(at - step - 1) % len(ring)] += got

    def all_gather(chunks, ring, at):
        for step in range(len(ring) - 1):
            got = pass_on(chunks[(at + 1 - step) % len(ring)], ring, at)
            chunks[(at - step) % len(ring)] = got

    piece = -(-x.numel() // world)
    flat = torch.zeros(world * piece)
    flat[: x.numel()] = x.flatten()
    chunks = flat.view(node_size, len(rail) * piece)
    reduce_scatter(chunks, neighbours, local)
    pieces = chunks[(local + 1) % node_size].view(len(rail), piece)
    reduce_scatter(pieces, rail, node)
    all_gather(pieces, rail, node)
    all_gather(chunks, neighbours, local)
    return flat[: x.numel()].view(x.shape)
    # END SOLUTION


# %% tags=["check"]
check("11.hierarchical")

# %% [markdown] why hierarchical
# **Why it matters.** For 8 nodes of 8 ranks, one ring over all takes 1.97 tensors across each border of two nodes,
# through one rank. Here each rank takes 2 × 7/8 of an eighth of a tensor across, 1.75 tensors in all, over eight links
# at once. RCCL's rail-optimized trees keep to the same rule: traffic between nodes goes between GPUs of the same index
# ([changelog](https://github.com/ROCm/rccl/blob/develop/CHANGELOG.md), ROCm 6.4.0).
#
# <details><summary>The puzzle</summary>
#
# Ranks 1 and 3. Rank 2 has number 0 in node 1: it holds another part, so what 1 and 2 add does not belong together.
#
# </details>

# %% [markdown] statement of all_to_all_two_hop
# ## 11.all_to_all_two_hop: few large messages over the slow link
#
# Each rank has a chunk of numbers for each rank, of any length. Write
# `all_to_all_two_hop(chunks, counts, node_size)`: each rank gets the chunks that are for it, in the order of their
# sources. Between nodes **only ranks of one rail talk**. So a chunk for a rank of another node and another number moves
# twice: once inside of a node, once along a rail.
#
# | | |
# |---|---|
# | `chunks` | list of world tensors, float32, 1-d: `chunks[d]` is for rank d; some are empty |
# | `counts` | int64 (world, world), the same on all ranks: `counts[s][d]` elements go from rank s to rank d |
# | `node_size` | S, as in 11.hierarchical |
# | result | list of world tensors: place s holds what rank s had for this rank, its own chunk too |
# | between nodes | each number crosses once, nothing else |
# | inside of nodes | a number moves once if source and destination have different local numbers, else never |
#
# Either hop may be the first. What a rank sends to another in one hop goes as one message; an empty one may be left
# out, on both sides.
#
# **A small example.** Two nodes of two. Rank 0 has `a` for rank 1, `b` for rank 2 and `c` for rank 3. With the hop
# inside of the node first, rank 1 gets `a` and `c` (both for number 1) from rank 0, and `b` stays. Then rank 1 sends
# `c`, beside its own chunk for rank 3, to rank 3.
#
# **A puzzle.** Without the two hops, how many messages does a rank send between nodes, for M = 8 and S = 8? And with
# them? `hint("11.all_to_all_two_hop")` gives three hints.


# %% 11.all_to_all_two_hop tags=["answer", "11.all_to_all_two_hop"]
def all_to_all_two_hop(
    chunks: list[Tensor], counts: Tensor, node_size: int
) -> list[Tensor]:
    """The chunks that all ranks have for this one, in the order of ranks."""
    # BEGIN SOLUTION
    world, me = dist.get_world_size(), dist.get_rank()
    node, local = divmod(me, node_size)
    neighbours = range(node * node_size, (node + 1) * node_size)
    rail = range(local, world, node_size)
    sizes = counts.tolist()

    def exchange(parts, expected):  # by rank: what goes, how much comes
        works = [dist.isend(parts[to], to) for to in parts if to != me]
        got = {source: torch.empty(size) for source, size in expected.items()}
        for source in got:
            if source != me:
                dist.recv(got[source], source)
        for work in works:
            work.wait()
        return got | {me: parts[me]}

    first, expected = {}, {}
    for peer in neighbours:
        column = range(peer % node_size, world, node_size)
        first[peer] = torch.cat([chunks[to] for to in column])
        expected[peer] = sum(sizes[peer][to] for to in rail)
    got = exchange(first, expected)
    pieces = {p: got[p].split([sizes[p][to] for to in rail]) for p in neighbours}

    second, sources = {}, {}
    for at, to in enumerate(rail):
        second[to] = torch.cat([pieces[peer][at] for peer in neighbours])
        sources[to] = range(at * node_size, (at + 1) * node_size)
    expected = {to: sum(sizes[s][me] for s in sources[to]) for to in rail}
    got = exchange(second, expected)
    return [
        part.clone()
        for to in rail
        for part in got[to].split([sizes[s][me] for s in sources[to]])
    ]
    # END SOLUTION


# %% tags=["check"]
check("11.all_to_all_two_hop")

# %% [markdown] why all_to_all_two_hop
# **Why it matters.** Every message costs time besides its bytes (lesson 11, sitting 2), and a dispatch of experts has
# as many messages as pairs of ranks. DeepSeek-V3's dispatch goes over InfiniBand to the GPU of the same number in the
# node first, and from there over NVLink ([arXiv 2412.19437](https://arxiv.org/abs/2412.19437), section 3.2.2).
#
# <details><summary>The puzzle</summary>
#
# 56 without, one to each rank of seven other nodes. 7 with them, each eight times as large.
#
# </details>

# %% [markdown] payoff of collectives
# ## Your ring trains a model
#
# Four ranks hold the same small model and a quarter of each batch. Each computes the gradient of its quarter; your
# `ring_all_reduce` sums them; all take the same step. One rank with whole batches must end with the same weights, but
# for the order of sums. How much does an order matter? A second run on one rank takes the same batches back to front:
# that is the yardstick.


# %% data parallel training
def fresh_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10))


def train(x, labels, ranks=1):
    """Weights after one step for each batch; x is (batches, rows, 32)."""
    model = fresh_model()
    for batch, wanted in zip(x, labels, strict=True):
        loss = nn.functional.cross_entropy(model(batch), wanted)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        flat = torch.cat([grad.flatten() for grad in grads])
        if ranks > 1:
            flat = ring_all_reduce(flat, dist.group.WORLD) / ranks
        with torch.no_grad():
            steps = flat.split([p.numel() for p in model.parameters()])
            for parameter, step in zip(model.parameters(), steps, strict=True):
                parameter -= 0.1 * step.view_as(parameter)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


# %% same weights
torch.manual_seed(1)
x, labels = torch.randn(50, 64, 32), torch.randint(10, (50, 64))
one = train(x, labels)
turned = train(x.flip(1), labels.flip(1))
quarters = [
    {"x": x[:, 16 * r : 16 * r + 16], "labels": labels[:, 16 * r : 16 * r + 16]}
    for r in range(4)
]
rows = {}
with lesson.when_written():
    found = lesson.run_ranks(train, 4, each=quarters, shared={"ranks": 4})
    off = [(weights - one).abs().max() for weights in found.values]
    rows = {
        "the four ranks agree to the bit": all(
            torch.equal(weights, found.values[0]) for weights in found.values
        ),
        "furthest from one rank": max(off),
        "one rank, batches back to front": (turned - one).abs().max(),
        "how far the weights have come": (one - train(x[:0], labels[:0])).abs().max(),
        "bytes a rank sent in a step": sum(found.sent[0]) // 50,
    }
lesson.table(rows, first="50 steps")

# %% [markdown] what the payoff shows
# The four ranks hold the same bits after 50 steps, and are as far from one rank as another order of the batch is: a few
# units in the last place of float32. Data parallelism by a ring changes the order of a sum and nothing else.

# %% [markdown] part of costs
# ## Part 2: what a transfer costs

# %% [markdown] statement of alpha_beta
# ## 11.alpha_beta: a simulator
#
# Write `alpha_beta(schedules, routes, links)`: how long each schedule takes on a network with shared links, and which
# one to take.
#
# | | |
# |---|---|
# | `schedules` | name -> list of steps; a step: list of transfers `(source, destination, bytes)`, all at once |
# | `routes` | `routes[source][destination]`: names of the links that such a transfer crosses, one or more |
# | `links` | name -> `(alpha, bandwidth)`: seconds, and bytes a second. A link has one direction |
# | result | `{"seconds": ..., "busiest": ..., "choose": ...}` |
#
# - Transfers of one step that cross the same link share it: the link carries the bytes of all of them. It is busy for
#   alpha + bytes / bandwidth. A link that carries nothing takes no part.
# - A step ends when the last of its links is done, and only then the next step begins.
# - `seconds`: name of a schedule -> its time. `busiest`: name of a schedule -> the link whose bytes, over all steps,
#   take longest (without alpha). `choose`: name of the fastest schedule. No case has a tie.
#
# For example two schedules for 8,000 bytes over two links in a row, `up` (1 µs, 1 GB/s) and `down` (1 µs, 2 GB/s): at
# once it takes 1 + 8 = 9 µs, in two steps 1 + 4 + 1 + 4 = 10 µs. `up` is busy for 8 µs, `down` for 4.
#
# **Two puzzles.** Where is contention in your code? And on which kind of network does a ring keep nearly all links
# idle?


# %% 11.alpha_beta tags=["answer", "11.alpha_beta"]
def alpha_beta(schedules: dict, routes: list, links: dict) -> dict:
    """Seconds and busiest link of each schedule, and the name of the fastest.

    >>> half = [(0, 1, 4000)]
    >>> schedules = {"once": [[(0, 1, 8000)]], "twice": [half, half]}
    >>> links = {"up": (1e-6, 1e9), "down": (1e-6, 2e9)}
    >>> alpha_beta(schedules, [[[], ["up", "down"]], [[], []]], links)["choose"]
    'once'
    """
    # BEGIN SOLUTION
    seconds, busiest = {}, {}
    for name, steps in schedules.items():
        seconds[name], whole = 0.0, {}
        for step in steps:
            load = {}
            for source, destination, size in step:
                for link in routes[source][destination]:
                    load[link] = load.get(link, 0) + size
                    whole[link] = whole.get(link, 0) + size
            seconds[name] += max(links[at][0] + load[at] / links[at][1] for at in load)
        busiest[name] = max(whole, key=lambda at: whole[at] / links[at][1])
    choose = min(seconds, key=lambda name: seconds[name])
    return {"seconds": seconds, "busiest": busiest, "choose": choose}
    # END SOLUTION


# %% tags=["check"]
check("11.alpha_beta")

# %% [markdown] why alpha_beta
# **Why it matters.** Twenty lines, and any algorithm can be tried on any network before there is a cable. Libraries
# choose in the same way: NCCL and RCCL add a latency from a table to bytes over a bandwidth, for each algorithm, and
# take the least (source: `src/graph/tuning.cc` of both).
#
# <details><summary>The puzzles</summary>
#
# In `load[link] + size`: contention is nothing but bytes added up on a name. And on a mesh: rank 3 sends to rank 4
# only, over one cable of n - 1.
#
# </details>

# %% [markdown] statement of node_limited
# ## 11.node_limited: at most M nodes
#
# `tables[i]` holds the experts of T tokens, chosen by a router that may use **at most i + 1 nodes** for a token. Write
# `node_limited(...)`: what the tokens cost over the slow and the fast link with each of the tables, and the largest
# limit whose traffic hides.
#
# | | |
# |---|---|
# | `tables` | list of int64 (T, k): numbers of experts, different ones in a row |
# | `homes` | int64 (T,): the rank on which a token lives. Both may be on a GPU: new tensors go where the inputs are |
# | `num_experts`, `nodes`, `ranks` | experts, nodes, and ranks of all nodes together; they divide each other |
# | `width` | numbers of a token's vector |
# | `slow`, `fast` | GB/s (`10**9` bytes) in one direction: each rank's network card, each rank's NVLink or xGMI |
# | `seconds` | time of the work behind which the traffic can hide |
# | result | `{"slow": ..., "fast": ..., "limit": ...}` |
#
# - **Places.** Rank r is on node r // (ranks // nodes). Neighbouring experts share a rank: expert e is on rank
#   e // (num_experts // ranks). The *place* of a rank is its number within its node.
# - **There, in FP8** (one byte a number). A token goes **once** to each *other* node that has one of its experts: over
#   the network, to the rank of the same place as its home. From there it is forwarded over the fast link, **once** to
#   each rank of that node that has one of its experts, if it is not that rank already. In its own node it goes from its
#   home in the same way.
# - **Back, in BF16** (two bytes), the same ways: sums are made in the node before they cross.
# - `slow`, `fast`: for each table the bytes of a token over this link, there and back, mean over all tokens.
# - `limit`: the largest M whose time is at most `seconds`; 0 if there is none. Each rank moves T / ranks tokens over
#   links of its own; both links work at the same time.
#
# For example 4 ranks on 2 nodes, 8 experts, `width` 100. One token lives on rank 1, which is place 1 of node 0. With
# experts 0, 1 and 3 it stays in its node. Ranks 0 and 1 have them, and it is on rank 1 already: one copy, so `slow` is
# 0 and `fast` is 300 bytes. With experts 0, 3 and 6 it also goes to node 1, where expert 6 is on rank 3, of place 1: it
# arrives there. So `slow` is 300 and `fast` 300. With `slow=50.0`, `fast=150.0` and `seconds=1e-9` the times are 0.5
# and 1.5 ns: the limit is 1.
#
# **A puzzle.** How many times as fast as the network must the fast link be, so that it never decides, if a token has on
# average c ranks with experts in each node that it goes to, and its arrival rank is one of them by chance only?


# %% 11.node_limited tags=["answer", "11.node_limited"]
def node_limited(
    tables: list[Tensor],
    homes: Tensor,
    num_experts: int,
    nodes: int,
    ranks: int,
    width: int,
    slow: float,
    fast: float,
    seconds: float,
) -> dict:
    """Bytes of a token over both links for each table, and the limit that hides."""
    # BEGIN SOLUTION
    T, each = len(homes), ranks // nodes
    tokens = torch.arange(T, device=homes.device)
    found = {"slow": [], "fast": [], "limit": 0}
    for limit, experts in enumerate(tables, 1):
        needs = torch.zeros(T, ranks, dtype=torch.bool, device=homes.device)
        needs.scatter_(1, experts // (num_experts // ranks), True)
        needs = needs.view(T, nodes, each)
        other = needs.any(2)
        other[tokens, homes // each] = False
        needs[tokens, :, homes % each] = False  # there already
        crossings, forwards = other.sum().item(), needs.sum().item()
        found["slow"].append(crossings / T * 3 * width)
        found["fast"].append(forwards / T * 3 * width)
        longest = max(found["slow"][-1] / slow, found["fast"][-1] / fast) / 1e9
        if T / ranks * longest <= seconds:
            found["limit"] = limit
    return found
    # END SOLUTION


# %% tags=["check"]
check("11.node_limited")

# %% [markdown] why node_limited
# **Why it matters.** This count is the argument for DeepSeek-V3's M = 4: NVLink has 3.2 times the bandwidth of its
# network, so a token may have 3.2 experts in each node without the fast link deciding (source: arXiv 2412.19437,
# section 3.2.2).
#
# <details><summary>The puzzle</summary>
#
# c ranks, of which the arrival rank is one with probability c / each: c (1 - 1 / each) times.
#
# </details>

# %% [markdown] statement of bandwidth_rule
# ## 11.bandwidth_rule: GB/s for each TFLOP/s
#
# Experts are gated MLPs: three matrices of h x d, where h is the model's width and d = `expert_width`. For each pair of
# a token and an expert the token's h numbers travel to the expert and h numbers travel back. Experts are spread over
# `ranks`, tokens choose evenly, and a pair whose expert is on the token's own rank does not travel. The traffic
# *hides* if sending takes no longer than computing, with both at their peaks.
#
# Write `bandwidth_rule(chips, expert_width, dispatch_bits, combine_bits, ranks)`.
#
# | | |
# |---|---|
# | `chips` | name -> `{"tflops": ..., "link_gb": ...}`: see below |
# | `dispatch_bits`, `combine_bits` | bits of a number on the way there and back |
# | result | `{"needed": ..., "hides": ..., "width": ...}`, each name -> value |
#
# - `tflops` is in TFLOP/s. `link_gb` is in GB/s **of both directions together**, as data sheets of NVLink have it. Both
#   are `None` where nobody says.
# - `needed`: GB/s **in one direction** that hide everything.
# - `hides`: whether the chip's link has as much.
# - `width`: the smallest multiple of 128 that would hide as `expert_width` on this chip and link.
# - `None` wherever a figure that is needed is `None`. A GB is `10**9` bytes, a TFLOP `10**12` FLOP.
#
# All ranks send and receive alike: what leaves a rank in one direction are its own tokens on their way there, and its
# results on their way back.
#
# For example 600 TFLOP/s and 300 GB/s with d = 1000, FP8 there, BF16 back, 4 ranks: 225 GB/s are needed and 150 are
# there. It does not hide; d = 1536 would.
#
# **A puzzle.** h is no parameter. Why?


# %% 11.bandwidth_rule tags=["answer", "11.bandwidth_rule"]
def bandwidth_rule(
    chips: dict, expert_width: int, dispatch_bits: int, combine_bits: int, ranks: int
) -> dict:
    """What hides on which chip, and how wide experts would have to be.

    >>> a = {"tflops": 600.0, "link_gb": 300.0}
    >>> b = {"tflops": None, "link_gb": 100.0}
    >>> bandwidth_rule({"a": a, "b": b}, 1000, 8, 16, 4)["width"]
    {'a': 1536, 'b': None}
    """
    # BEGIN SOLUTION
    share = (ranks - 1) / ranks
    per_flop = (dispatch_bits + combine_bits) / 8 * share / 6  # bytes, times d
    found = {"needed": {}, "hides": {}, "width": {}}
    for name, chip in chips.items():
        needed = hides = width = None
        if chip["tflops"] is not None:
            needed = chip["tflops"] * 1000 * per_flop / expert_width
            if chip["link_gb"] is not None:
                link = chip["link_gb"] / 2
                hides = link >= needed
                width = 128 * math.ceil(needed * expert_width / link / 128)
        found["needed"][name] = needed
        found["hides"][name] = hides
        found["width"][name] = width
    return found
    # END SOLUTION


# %% tags=["check"]
check("11.bandwidth_rule")

# %% [markdown] why bandwidth_rule
# **Why it matters.** DeepSeek's V4 report gives this rule to those who build chips: with FP8 there and BF16 back, and
# its experts of d = 3072, 1 GB/s hides 6.1 TFLOP/s.
#
# <details><summary>The puzzle</summary>
#
# FLOP and bytes of a pair are both h times something: a wider model sends more and computes more, in proportion.
#
# </details>

# %% [markdown] payoff of costs
# ## Your parts at work
#
# Your simulator on four networks with figures of the registry, and an all-reduce of three sizes: first between ring and
# tree, where a rank talks to one partner at a time, then among all. Then your rule for the chips of the registry whose
# links it knows, with one card of 50 GB/s a GPU in place of their own links beside it. Last, DeepSeek-V3's prefill on
# H800: 4 nodes, 32 GPUs, 256 experts, 8 for each token, 4,096 tokens a GPU. The work is that of nine experts of 2,048
# for each token at the BF16 peak. With which limit on nodes would one layer's traffic hide?


# %% own choices
def my_choice(network, size: int, among: tuple) -> str:
    ranks = range(network.ranks)
    routes = [[network.route(a, b) if a != b else [] for b in ranks] for a in ranks]
    links = {
        name: (at.alpha or 0.0, at.bandwidth) for name, at in network.links.items()
    }
    found = lesson.collective_schedules("all-reduce", network.nodes)
    steps = {name: found[name].transfers(size) for name in among if name in found}
    mine = alpha_beta(steps, routes, links)
    return f"{mine['choose']}, {1e6 * mine['seconds'][mine['choose']]:,.0f} µs"


SIZES = {"16 KiB": 2**14, "1 MiB": 2**20, "64 MiB": 2**26}
EVERY = ("ring", "tree", "halving and doubling", "direct", "hierarchical")
rows = {}
with lesson.when_written():
    for name, make in lesson.TOPOLOGIES.items():
        network, rows[name] = make(), {}
        if all(link.alpha is not None for link in network.links.values()):
            for label, size in SIZES.items():
                rows[name][label] = my_choice(network, size, ("ring", "tree"))
        rows[name]["64 MiB, any algorithm"] = my_choice(network, 2**26, EVERY)
lesson.table(
    rows,
    first="ring or tree?",
    note="8 Ascend 910C: no source has an alpha, so the bytes alone, and only where "
    "they decide.",
)

# %% own rule
sheets = {
    name: {"tflops": chip.peak("fp8"), "link_gb": chip.link_gb.value}
    for name, chip in CHIPS.items()
    if chip.peak("fp8")
}
pair = lesson.LINKS["xGMI of MI300X"].gb.value  # to one peer, one direction
sheets["MI300X"]["link_gb"] = 2 * 7 * pair
card = {name: sheet | {"link_gb": 100.0} for name, sheet in sheets.items()}
rows = {}
with lesson.when_written():
    inside, across = (bandwidth_rule(one, 2048, 8, 16, 64) for one in (sheets, card))
    for name in sheets:
        rows[name] = {
            "needed, GB/s": inside["needed"][name],
            "own links hide": inside["hides"][name],
            "from width": inside["width"][name],
            "card hides": across["hides"][name],
            "card, from width": across["width"][name],
        }
lesson.table(rows, first="experts of 2,048")

# %% own prefill
torch.manual_seed(0)
T, ranks = 32 * 256, 32  # a sixteenth of the tokens: the means are the same
tables = lesson.limited_tables(torch.rand(T, 256), k=8, nodes=4)
work = 4096 * 9 * 6 * 7168 * 2048 / (CHIPS["H800"].peak("bf16") * 1e12)
rows, note = {}, ""
with lesson.when_written():
    given = (tables, torch.arange(T) % ranks, 256, 4, ranks, 7168, 50.0, 160.0)
    mine = node_limited(*given, seconds=work * 256 / 4096)
    both = zip(mine["slow"], mine["fast"], strict=True)
    for limit, (slow, fast) in enumerate(both, 1):
        rows[f"at most {limit} nodes"] = {
            "network, KB a token": slow / 1e3,
            "NVLink, KB a token": fast / 1e3,
            "network, ms a layer": 1e3 * 4096 * slow / 50e9,
            "NVLink, ms a layer": 1e3 * 4096 * fast / 160e9,
        }
    note = f"work: {1e3 * work:.2f} ms a layer, so your limit is {mine['limit']}"
lesson.table(rows, first="prefill over 4 nodes", note=note)

# %% [markdown] after the prefill
# The report's prefill has no limit to set: 4 nodes are all there are. Whether its traffic hides is up to the work that
# runs at the same time, and the report doubles that: it puts attention and experts of one half of the tokens beside the
# transfers of the other half (arXiv 2412.19437, section 3.4.1).

# %% [markdown] part of dispatch and combine
# ## Part 3: dispatch and combine
#
# Three exercises, one layer. `R` ranks form a group, and E experts are dealt out evenly: the group's rank r owns the
# experts `r * E/R` up to, and without, `(r + 1) * E/R`. Within its rank an expert has a *local number*, 0 to
# `E/R - 1`. Each rank has tokens of its own, as many as it likes. The router has chosen k experts for each.
#
# **Words.** A *source* is the rank that a token lives on, an *owner* the rank that holds the expert. A *copy* is a row
# of x on its way to one expert: a token makes k of them. `group` is what `torch.distributed` calls take as `group=`;
# it may be a part of the world. Numbers of ranks are those **in the group**.
#
# **A rank that returns early stops the others.** Every rank of a group must make the same calls of `torch.distributed`
# in the same order, also a rank that has nothing to send. A check waits some seconds, then says where each rank was.

# %% [markdown] statement of dispatch
# ## 11.dispatch: tokens to their experts
#
# Write `dispatch(x, experts, num_experts, group)`. It runs on each rank of the group at the same time.
#
# | | |
# |---|---|
# | `x` | (T, D), bfloat16 or float32: the tokens of this rank. T differs from rank to rank, and may be 0 |
# | `experts` | int64 (T, k): the experts of each token, by number among all; k different ones in a row, in any order |
# | `num_experts` | E, of all ranks together; R divides it |
# | `group` | the ranks that take part |
# | result | a tuple `(rows, counts)` |
# | `rows` | (n, D), dtype of `x`: the copies that came to this rank's experts, bit by bit |
# | `counts` | int64 (R, E/R): `counts[s, e]` copies came from source s for the local expert e |
#
# **Order of rows**: by local expert; within an expert by source; within a source by token number. So the rows of one
# expert lie together, and the same batch always gives the same order.
#
# **Bytes.** Each copy travels once, from its source to its owner, by `send` or an all-to-all. A check counts the bytes
# between each two ranks; about 16 bytes a copy may be added, and the counts. Gathering everything everywhere is right
# and fails.
#
# **A small example.** R = 2, E = 4, k = 2. Rank 0 has the tokens a and b, rank 1 has c:
#
# | rank | token | experts |
# |---|---|---|
# | 0 | a | 2, 0 |
# | 0 | b | 0, 3 |
# | 1 | c | 3, 0 |
#
# Rank 0 owns experts 0 and 1. It gets the rows a, b, c, all for expert 0, and counts [[2, 0], [1, 0]]. Rank 1 owns 2
# and 3. It gets a for expert 2, then b and c for expert 3: counts [[1, 1], [0, 1]].
#
# **Two puzzles.** An all-to-all delivers what came from source 0, then from source 1, and so on. Is that the order that
# is asked for? And if two ranks send as many copies, can their splits still differ?
#
# **torch that helps.** `torch.argsort(..., stable=True)`, `torch.bincount(..., minlength=)`, `repeat_interleave`, and
# `dist.all_to_all_single(output, input, output_split_sizes, input_split_sizes, group=group)`: input is cut into one
# piece for each rank of the group, output is put together from the pieces that come. Without split sizes all pieces
# are alike. `hint("11.dispatch")` gives three hints.


# %% 11.dispatch tags=["answer", "11.dispatch"]
def dispatch(
    x: Tensor, experts: Tensor, num_experts: int, group: dist.ProcessGroup
) -> tuple[Tensor, Tensor]:
    """The copies for this rank's experts, and from which source how many came for each.

    (T, D) and int64 (T, k) to (n, D) of the same dtype, and int64 (R, num_experts / R).
    """
    # BEGIN SOLUTION
    world = dist.get_world_size(group)
    wanted = experts.flatten()
    order = wanted.argsort(stable=True)  # by expert, so by owner; then by token
    sent = wanted.bincount(minlength=num_experts).view(world, -1)
    counts = torch.empty_like(sent)
    dist.all_to_all_single(counts, sent, group=group)
    copies = x[order // experts.shape[1]]
    came = x.new_empty(int(counts.sum()), x.shape[1])
    splits = counts.sum(1).tolist(), sent.sum(1).tolist()
    dist.all_to_all_single(came, copies, *splits, group=group)
    local = torch.arange(counts.shape[1]).repeat(world)  # of each element of counts
    local = local.repeat_interleave(counts.flatten())  # of each row that came
    return came[local.argsort(stable=True)], counts
    # END SOLUTION


# %% tags=["check"]
check("11.dispatch")

# %% [markdown] why dispatch
# **Why it matters.** All of expert parallelism is this call and the next one, twice in each layer and each direction.
# The order decides whether a grouped product can read its rows as stretches, and whether two runs agree to the bit.
#
# <details><summary>The puzzles</summary>
#
# No: by source first, then by expert. With more than one expert a rank, one more permutation sorts it. And yes: as many
# copies in all says nothing of how many go to each owner.
#
# </details>

# %% [markdown] statement of combine
# ## 11.combine: results back to their tokens
#
# The experts have turned each row into another one, in the same order. Write `combine(y, counts, experts, weights,
# group)`, which brings them home and adds them up:
#
# $$ \text{out}[t] = \sum_{j=0}^{k-1} \text{weights}[t, j] \cdot
# \text{result of expert } \text{experts}[t, j] \text{ on token } t $$
#
# | | |
# |---|---|
# | `y` | (n, D), bfloat16 or float32: a result for each row of `dispatch`, in its order |
# | `counts` | int64 (R, E/R), as `dispatch` returned it on this rank |
# | `experts`, `weights` | int64 and float32 (T, k), of this rank's tokens |
# | `group` | the ranks that take part |
# | result | (T, D), dtype of `y` |
#
# **The sum.** In float32, one term after the other **in the order of j**: the product for j = 0, plus the product for
# j = 1, and so on. The result is rounded to the dtype of `y` once, at the end. Float sums depend on their order; with
# this one the bits do not depend on which rank owns which expert.
#
# **Bytes.** Each result travels once, from owner to source, in the dtype of `y`.
#
# **A small example.** The one of 11.dispatch: rank 0 had rows a, b, c of expert 0, and y there is (10, 20, 30), one
# number a row. On rank 1 y is (1, 2, 3), for a of expert 2, b and c of expert 3. The weights of a are (0.75, 0.25),
# those of b (0.5, 1), those of c (1, 0.5). Then a is 0.75 · 1 + 0.25 · 10 = 3.25, b is 0.5 · 20 + 1 · 2 = 12 and c is
# 1 · 3 + 0.5 · 30 = 18.
#
# **Two puzzles.** Do counts have to be exchanged again? And what undoes `x[order]`?
#
# **torch that helps.** What you used for dispatch, the other way. `order.argsort()` of a permutation is its inverse.
# `hint("11.combine")` gives three hints.


# %% 11.combine tags=["answer", "11.combine"]
def combine(
    y: Tensor,
    counts: Tensor,
    experts: Tensor,
    weights: Tensor,
    group: dist.ProcessGroup,
) -> Tensor:
    """The weighted sum of the experts' results for each token of this rank.

    (n, D), int64 (R, E/R), int64 (T, k) and float32 (T, k) to (T, D), dtype of y.
    """
    # BEGIN SOLUTION
    world, each = counts.shape
    source = torch.arange(world).repeat(each)  # of each element of counts.T
    source = source.repeat_interleave(counts.T.flatten())  # of each row of y
    wanted = experts.flatten()
    owners = (wanted // each).bincount(minlength=world)
    back = y.new_empty(len(wanted), y.shape[1])
    splits = owners.tolist(), counts.sum(1).tolist()
    by_source = y[source.argsort(stable=True)]
    dist.all_to_all_single(back, by_source, *splits, group=group)
    place = wanted.argsort(stable=True).argsort().view(experts.shape)
    out = torch.zeros(len(experts), y.shape[1])
    for j in range(experts.shape[1]):
        out += weights[:, j, None] * back[place[:, j]].float()
    return out.to(y.dtype)
    # END SOLUTION


# %% tags=["check"]
check("11.combine")

# %% [markdown] why combine
# **Why it matters.** A training run that is not the same twice cannot be debugged. Sums in the order of arrival are the
# usual reason, and here the remedy is free: the rows lie there, and the order of k is known.
#
# <details><summary>The puzzles</summary>
#
# No. A rank knows from its own experts how many results come back from each owner, and from counts how many it sends
# to each source. What undoes a permutation is its inverse: row `order[i]` went to place i, so place i goes back to
# `order[i]`.
#
# </details>

# %% [markdown] statement of fp8_dispatch
# ## 11.fp8_dispatch: half the bytes
#
# Write `fp8_dispatch(x, experts, num_experts, group)`: as 11.dispatch, but what travels is E4M3. Each row of x is cut
# into tiles of 128 columns, the last one may be short, and each tile has a float32 scale:
#
# $$ \text{scale} = \frac{\max |x|}{448}, \qquad \text{code} = \text{cast to E4M3}\Bigl(\frac{x}{\text{scale}}\Bigr) $$
#
# | | |
# |---|---|
# | `x`, `experts`, `num_experts`, `group` | as in 11.dispatch |
# | result | a tuple `(rows, counts)`, as in 11.dispatch, but `rows` is **float32**: code times scale |
# | a tile of zeros | comes out as zeros |
#
# Codes are `torch.float8_e4m3fn`, the format of unit 08, to nearest. A code may be the neighbour of the nearest where
# x / scale lies beside the middle of two.
#
# **Bytes.** A copy is D bytes of codes and 4 bytes for each tile: at D = 7,168 (1 + 4/128) / 2 = 51.6% of bfloat16.
# A check counts them. So quantise before the exchange, and fill no tile up for the wire.
#
# **A small example.** D = 130, a row of 1s and at its end (2, 4): two tiles. The first has the scale 1/448 and the code
# of 448, 128 times. The second has the scale 4/448 and the codes of 224 and 448. The wire takes 130 + 8 bytes.
#
# **Two puzzles.** gloo refuses `float8_e4m3fn` ("Invalid scalar type"). What else is a byte? And codes and scales could
# go in two all-to-alls, or in one. Which rows would that one have?
#
# **torch that helps.** `a.view(torch.uint8)` reads the same memory as bytes, and `bytes.view(torch.float32)` reads it
# back; the last axis must be contiguous, and begin where 4 divides. A trap: part of a single row counts as contiguous,
# so `contiguous()` does not copy it, and it begins where it began; `clone(memory_format=torch.contiguous_format)`
# always copies. And where no row arrives, `view(0, -1, 128)` cannot tell what -1 is; `unflatten(1, (-1, 128))` can.
# `torch.nn.functional.pad`. `hint("11.fp8_dispatch")` gives three hints.


# %% 11.fp8_dispatch tags=["answer", "11.fp8_dispatch"]
def fp8_dispatch(
    x: Tensor, experts: Tensor, num_experts: int, group: dist.ProcessGroup
) -> tuple[Tensor, Tensor]:
    """As dispatch, with rows that travelled as E4M3 with a scale for each 128 columns.

    (T, D) and int64 (T, k) to float32 (n, D) and int64 (R, num_experts / R).
    """
    # BEGIN SOLUTION
    world, D = dist.get_world_size(group), x.shape[1]
    tiles = torch.nn.functional.pad(x.float(), (0, -D % 128)).unflatten(1, (-1, 128))
    amax = tiles.abs().amax(2)
    scales = torch.where(amax > 0, amax / 448, 1.0)
    codes = (tiles / scales[:, :, None]).to(torch.float8_e4m3fn).flatten(1)[:, :D]
    wire = torch.cat((codes.view(torch.uint8), scales.view(torch.uint8)), 1)

    wanted = experts.flatten()
    order = wanted.argsort(stable=True)
    sent = wanted.bincount(minlength=num_experts).view(world, -1)
    counts = torch.empty_like(sent)
    dist.all_to_all_single(counts, sent, group=group)
    came = wire.new_empty(int(counts.sum()), wire.shape[1])
    splits = counts.sum(1).tolist(), sent.sum(1).tolist()
    copies = wire[order // experts.shape[1]]
    dist.all_to_all_single(came, copies, *splits, group=group)
    local = torch.arange(counts.shape[1]).repeat(world)
    local = local.repeat_interleave(counts.flatten())
    came = came[local.argsort(stable=True)]

    apart = came[:, D:].clone(memory_format=torch.contiguous_format)
    scales = apart.view(torch.float32)
    codes = came[:, :D].contiguous().view(torch.float8_e4m3fn).float()
    return codes * scales.repeat_interleave(128, 1)[:, :D], counts
    # END SOLUTION


# %% tags=["check"]
check("11.fp8_dispatch")

# %% [markdown] why fp8_dispatch
# **Why it matters.** DeepSeek-V3 dispatches in FP8 and combines in BF16 (arXiv 2412.19437, section 3.3.3). What goes
# out is what the experts' FP8 product would read anyhow, so the wire costs no digit more. What comes back is summed.
#
# <details><summary>The puzzles</summary>
#
# `uint8` is a byte, and gloo carries it. One all-to-all has rows of D + 4 · tiles bytes: the codes, and behind them the
# bytes of the scales.
#
# </details>

# %% [markdown] payoff of dispatch and combine
# ## A layer over four ranks
#
# Eight experts, two to a rank, and 40 tokens that are shared out unevenly. Your `dispatch` brings the tokens to their
# experts, your `combine` the results back. Beside it the same layer on one rank, which owns all experts. Do the bits
# agree, and how many bytes does a token put on the wire?

# %% your layer on ranks
rows = {}
with lesson.when_written():
    rows["dispatch"] = lesson.layer_on_ranks(dispatch, combine)
    rows["fp8_dispatch"] = lesson.layer_on_ranks(fp8_dispatch, combine)
lesson.table(rows, across=True)

# %% [markdown] what the layer showed
# *The same bits* is yes where each expert sees its rows one by one, as here. (A product whose tile mixes rows may sum
# in another order for another number of rows; the experts of this cell take one row after the other.) A token's bytes
# are the copies that leave its rank: k · D · 2 bytes out, times the share of experts that live elsewhere, and as many
# back. In FP8 the way out is nearly halved, and *largest difference* says what that costs.

# %% [markdown] part four
# ## Part 4: a step is as long as its longest part

# %% [markdown] statement of overlap
# ## 11.overlap: compute behind communication
#
# Write `overlap(batches, compute)`, which runs on every rank. A rank has some batches of rows. Of each batch, part `r`
# belongs to the experts of rank `r`: it goes there, `compute` makes something of it, and that comes back. Each part
# travels as **one message**, out and back: a check counts them.
#
# | | |
# |---|---|
# | `batches` | float32 tensors $(R \cdot n_i, D)$ for $R$ ranks; $n_i$ is the same on all ranks. Do not change them |
# | `compute(rows)` | what came in, by source, to a tensor of its shape, slowly. Once for each batch, in order |
# | result | a list, for each batch $(R \cdot n_i, D)$: part `r` is what rank `r` made of your part `r` |
# | ranks | the default process group; $R \ge 2$ |
#
# `dist.all_to_all_single(out, rows)` sends part `r` of `rows` to rank `r` and puts what came from rank `s` into part
# `s` of `out`. With `async_op=True` it gives a work back at once; `out` is filled when `work.wait()` has returned.
# (`dist.isend` and `dist.irecv` will do as well, one message for each part.)
#
# While a batch is computed, the next batch must be on its way, and so must be the result of the one before. The check
# goes by the order of events: what had begun before a compute and was not waited for until it had ended. So a slow
# machine does not matter.
#
# **A small example.** Two ranks, one batch of two rows each: (1, 2) on rank 0 and (3, 4) on rank 1. Rank 0 computes
# 10 · x, rank 1 computes 100 · x. What comes back on rank 0, and on rank 1?


# %% 11.overlap tags=["answer", "11.overlap"]
def overlap(batches: list[Tensor], compute) -> list[Tensor]:
    """What the experts of all ranks make of each batch, with exchanges behind the compute."""

    # BEGIN SOLUTION
    def begin(rows):
        out = torch.empty_like(rows)
        return out, dist.all_to_all_single(out, rows, async_op=True)

    results, coming = [], begin(batches[0])
    for number in range(len(batches)):
        rows, work = coming
        if number + 1 < len(batches):
            coming = begin(batches[number + 1])
        work.wait()
        results.append(begin(compute(rows)))
    for _, work in results:
        work.wait()
    return [out for out, _ in results]
    # END SOLUTION


# %% 11.overlap check tags=["check", "11.overlap"]
check("11.overlap")

# %% [markdown] own overlap
# **Why it matters.** What an exchange takes and no compute hides is lost. Here is your function on four ranks with a
# slow wire, beside one thing after the other:
#
# <details><summary>The small example</summary>
#
# Rank 0 gets 1 from itself and 3 from rank 1, and makes 10 and 30 of them. Rank 1 makes 200 and 400. Back on rank 0:
# (10, 200). On rank 1: (30, 400).
#
# </details>

# %% your overlap
shown = None
with lesson.when_written():
    shown = lesson.overlapped(overlap)
shown and lesson.timeline_figure(shown.lanes)

# %% your share
lesson.table({"share of the exchanges that was hidden": shown.hidden} if shown else {})

# %% [markdown] statement of straggler
# ## 11.straggler: who holds everybody up?
#
# Write `straggler(timeline)`. A step of an expert-parallel layer: every rank computes, sends a message to every other
# rank, all at once, receives one from each, and waits in a barrier for the others. The timeline has the events of some
# steps, a list of dicts:
#
# | key | |
# |---|---|
# | `step`, `rank` | numbers from 0 |
# | `name` | `"compute"`, `"send"`, `"recv"`, `"barrier"` |
# | `peer` | of a send: to whom; of a recv: from whom; else -1 |
# | `amount` | of a compute: tokens; of a send or recv: bytes; of a barrier 0 |
# | `start`, `end` | seconds, by **the clock of that rank**. Clocks of ranks differ, by any amount |
#
# A send begins when its rank has computed and ends when the message is there (receives were posted before, so no send
# waits for its receiver); a recv begins when its rank has computed and ends when the message has come. The result is
# one of
#
# - `("rank", r)`: rank `r` computes slowly: it takes 1.5 times the usual time for a token, or more;
# - `("link", a, b)`: messages from `a` to `b` take 1.5 times the usual time for a byte, or more;
# - `("none",)`: neither.
#
# *Usual* is the median over all ranks, or over all links. At most one rank or link is slow, and it is so in nearly
# every step. Anybody may have one bad step, and a rank may have more tokens than others, or longer messages.
#
# **A small example**, one step of three ranks: they compute 10, 20 and 10 seconds, for 100, 200 and 100 tokens. Each
# message has 1,000 bytes and takes 1 second, but the one from rank 1 to rank 2 takes 4. Who is slow? And who waits
# longest?


# %% 11.straggler tags=["answer", "11.straggler"]
def straggler(timeline: list[dict]) -> tuple:
    """("rank", r), ("link", a, b) or ("none",): what is slow in most steps of a timeline."""
    # BEGIN SOLUTION
    costs = {"rank": {}, "link": {}}
    for event in timeline:
        if event["name"] == "compute":
            every = costs["rank"].setdefault((event["rank"],), [])
        elif event["name"] == "send":
            every = costs["link"].setdefault((event["rank"], event["peer"]), [])
        else:
            continue  # waiting is what others cause
        every.append((event["end"] - event["start"]) / event["amount"])
    found = []
    for kind, of_kind in costs.items():
        middle = {who: statistics.median(every) for who, every in of_kind.items()}
        usual = statistics.median(middle.values())
        found += [(cost / usual, (kind, *who)) for who, cost in middle.items()]
    ratio, who = max(found)
    return who if ratio >= 1.5 else ("none",)
    # END SOLUTION


# %% 11.straggler check tags=["check", "11.straggler"]
check("11.straggler")

# %% [markdown] own straggler
# **Why it matters.** In a job of thousands of GPUs one is slow on most days, and the profile of every other rank shows
# the same thing: waiting. The two timelines below are of real processes on this machine. In one a rank computes three
# times as slowly; in the other the process group slows one direction of one link down.
#
# <details><summary>The small example</summary>
#
# 0.1 seconds for a token on every rank: rank 1 has more to do and is not slow. The link from 1 to 2 takes four times as
# long for a byte as the others. Rank 0 waits longest: it has computed after 10 seconds and its last message comes
# after 21; rank 2 waits for the link.
#
# </details>

# %% your straggler
seen = {}
with lesson.when_written():
    for name, slow in {
        "rank 1, three times": {"slow_rank": (1, 3.0)},
        "link from 3 to 1, five times": {"slow_link": (3, 1, 5.0)},
    }.items():
        seen[name] = str(straggler(lesson.recorded(**slow)))
lesson.table(seen, first="what is slow")

# %% [markdown] statement of eplb
# ## 11.eplb: redundant experts
#
# A *slot* is room for one expert on a GPU. There are more slots than experts: who has a second slot, or a third, stands
# there once more, as a *redundant expert*. Write `eplb(load, num_replicas, num_groups, num_nodes, num_gpus)`: which
# experts get the spare slots, and where each stands.
#
# | | |
# |---|---|
# | `load` | list of int, tokens of each of the $E$ experts |
# | `num_replicas` | slots in all, as many on each GPU: slot $s$ is on GPU `s // (num_replicas // num_gpus)` |
# | `num_groups` | experts stand in groups of neighbours: expert $e$ is in group `e // (E // num_groups)` |
# | `num_nodes`, `num_gpus` | each node has as many GPUs, and so as many slots, neighbours too |
# | result | `(phy2log, log2phy)`: list of the expert of each slot; for each expert the list of its slots |
#
# Every expert has a slot. The tokens of an expert are shared evenly by its slots. **If `num_nodes` divides
# `num_groups`**, every node holds as many groups, and a group with all of its slots is on one node. If it does not,
# nodes do not count.
#
# Make the busiest GPU bear little. Two greedy rules go a long way: *give* a spare slot to the expert whose slots bear
# most each; *place* the heaviest first, each where least is borne and there is room. Groups are placed on nodes by
# their sums, by the second rule. The check allows the busiest GPU 5% more than these rules give; other ways are as
# welcome.
#
# **A small example.** `eplb([90, 30, 20, 40], 6, 1, 1, 3)`: six slots for four experts on three GPUs. Two slots are to
# spare. The first goes to expert 0. And the second?


# %% 11.eplb tags=["answer", "11.eplb"]
def eplb(
    load: list[int], num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> tuple[list[int], list[list[int]]]:
    """The expert of each slot, and the slots of each expert.

    >>> phy2log, log2phy = eplb([90, 30, 20, 40], 6, 1, 1, 3)
    >>> [len(slots) for slots in log2phy]
    [3, 1, 1, 1]
    """

    # BEGIN SOLUTION
    def pack(weights, packs):
        room = len(weights) // packs
        packed, borne = [[] for _ in range(packs)], [0.0] * packs
        for item in sorted(range(len(weights)), key=lambda item: -weights[item]):
            having_room = (p for p in range(packs) if len(packed[p]) < room)
            lightest = min(having_room, key=lambda p: borne[p])
            packed[lightest].append(item)
            borne[lightest] += weights[item]
        return packed

    if num_groups % num_nodes:
        num_groups = num_nodes = 1  # one pool
    size = len(load) // num_groups
    groups = [load[g * size : (g + 1) * size] for g in range(num_groups)]
    phy2log = []
    for node in pack([sum(group) for group in groups], num_nodes):
        experts = [g * size + e for g in node for e in range(size)]
        copies = dict.fromkeys(experts, 1)
        for _ in range(num_replicas // num_nodes - len(experts)):
            busiest = max(experts, key=lambda e: load[e] / copies[e])
            copies[busiest] += 1
        slots = [e for e in experts for _ in range(copies[e])]
        for gpu in pack([load[e] / copies[e] for e in slots], num_gpus // num_nodes):
            phy2log += [slots[item] for item in gpu]
    log2phy = [
        [s for s, e in enumerate(phy2log) if e == one] for one in range(len(load))
    ]
    return phy2log, log2phy
    # END SOLUTION


# %% 11.eplb check tags=["check", "11.eplb"]
check("11.eplb")

# %% [markdown] own placement
# **Why it matters.** All GPUs of a layer wait for the busiest one. Below: 64 experts on 16 GPUs, by your function, with
# 0, 16 and 32 spare slots. Each spare slot costs the memory of an expert.
#
# <details><summary>The small example</summary>
#
# Expert 0 again: its two slots bear 45 each, and expert 3 bears 40. Then there are three of 30, and 30, 20, 40 beside
# them: (40, 20), (30, 30), (30, 30) puts 60 on every GPU.
#
# </details>

# %% your placement
rows = {}
with lesson.when_written():
    for spare in (0, 16, 32):
        rows[spare] = lesson.placed(lesson.expert_loads(), 64 + spare, 16, eplb)
lesson.table(rows, first="spare slots")

# %% [markdown] payoff of expert parallelism
# ## The payoff: unit 10's model over eight ranks
#
# Eight processes: 4 expert-parallel ranks, twice. Each holds two of the eight experts of a layer and all other weights,
# and reads its own two of the sixteen sequences. Your `dispatch` and `combine` carry tokens to experts and back, and
# gradients the same ways in reverse: with one expert and the weight 1 a row, each of your functions is the other's
# backward pass. Gradients of experts are summed over the two replicas, all others over the eight ranks.
#
# What should come out: the losses and the gradients of one rank that holds everything, but for the order of sums. The
# last line of the table says how far float32 may be off from float64, by the longest sum: losses over twelve steps, and
# gradients of the first step by their own size.

# %% your expert parallel training
trained = None
with lesson.when_written():
    trained = lesson.expert_parallel(dispatch, combine)
lesson.table(trained.rows if trained else {}, first="run")

# %% [markdown] own bytes
# And the bytes. A token crosses to an expert and back, and its gradients do: four times 32 numbers of 4 bytes, and one
# time in four its expert is at home. Without the counts, how many bytes for a token and one of its experts? (Pairs are
# not spread evenly, and counts travel as well.)

# %% your bytes
rows = {"by the formula": 4 * 32 * 4 * 3 / 4}
if trained:
    rows["sent, by the counters of the ranks"] = trained.bytes_of_a_pair
lesson.table(rows, first="bytes for a token and one of its experts")

# %% [markdown] end of the lab
# ## Done
#
# From one message to a model over ranks. Unit 12 cuts the model the other way, by layers.

# %% progress
progress()
