# %% [markdown] top
# # Lab 11: expert parallelism
#
# **Three exercises** in part 1: collectives from send and receive, on real ranks.
#
# - **First**: lesson 11. Everything that is asked here is explained there.
# - **Time**: part 1 takes, as a guess, 100 minutes.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check
#   starts ranks, real processes, for each public case and for three fresh ones: some ten starts, a few seconds. A rank
#   that hangs is ended and named. `hint("11.ring_all_reduce")` gives three hints of growing strength.
#   `solution("11.ring_all_reduce")` asks first.
# - **Rules of part 1**: tensors are on the CPU, in float32. Use `isend`, `irecv`, `send`, `recv` or
#   `batch_isend_irecv` of `torch.distributed`, imported as `dist`, and no collective. A check counts the bytes that
#   each rank sends to each other.

# %% imports tags=["setup"]
import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpu_utils import check, hint, lesson, progress, solution

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
try:
    quarters = [
        {"x": x[:, 16 * r : 16 * r + 16], "labels": labels[:, 16 * r : 16 * r + 16]}
        for r in range(4)
    ]
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
    lesson.table({name: {"": value} for name, value in rows.items()}, first="50 steps")
except (lesson.RankFailed, AttributeError, TypeError) as why:
    print(f"11.ring_all_reduce comes first: {str(why).splitlines()[0]}")

# %% [markdown] what the payoff shows
# The four ranks hold the same bits after 50 steps, and are as far from one rank as another order of the batch is: a few
# units in the last place of float32. Data parallelism by a ring changes the order of a sum and nothing else.

# %% progress
progress()
