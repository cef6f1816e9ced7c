# %% [markdown] top
# # Lab 10: latent attention and mixture of experts
#
# **Nine exercises.** Two of attention with latent vectors, three of routing, two kernels, and two of the model: a layer
# of experts and the loss of the token after the next. At the end your own parts stand in a model that trains.
#
# - **First**: lesson 10. Everything that is asked here is explained there.
# - **Time**: four parts, one for each sitting of the lesson. As a guess, not from a stopwatch: 60, 60, 90 and 45
#   minutes.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. One case looks what a GPU would refuse: new tensors go
#   where the inputs are, `device=x.device`. `hint("10.mla")` gives three hints of growing strength.
#   `solution("10.mla")` asks first.

# %% imports tags=["setup"]
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, hint, lesson, progress, solution, virtual_gpu

# %% [markdown] part one
# ## Part 1: attention with latent vectors

# %% [markdown] statement of mla
# ## 10.mla: attention, and what a cache keeps of it
#
# Write `mla(x, weights, heads, theta, eps)`: multi-head latent attention of whole sequences, as for a prompt or in
# training. It returns `(y, latent, k_rope)`: the result, and the two things that a cache has to keep.
#
# The weights have DeepSeek's names and shapes, (outputs, inputs), so a projection of $x$ is $x W^T$. `heads` is given;
# every other size is to be read off the shapes.
#
# | name in `weights` | shape | what it makes |
# |---|---|---|
# | `q_a_proj`, `q_a_layernorm` | (q_rank, D), (q_rank,) | the latent vector of the query, and its norm |
# | `q_b_proj` | (heads · (nope + rope), q_rank) | queries; of each head first nope, then rope numbers |
# | `kv_a_proj_with_mqa` | (rank + rope, D) | the latent vector of keys and values, then the rope key |
# | `kv_a_layernorm` | (rank,) | the norm of the latent part alone |
# | `kv_b_proj` | (heads · (nope + value), rank) | of each head first its key, then its value |
# | `o_proj` | (D, heads · value) | the result, from the values of all heads |
#
# - **Norm**: RMSNorm, $x_i\, g_i \,/ \sqrt{\operatorname{mean}(x^2) + \text{eps}}$ with the weights $g$. No mean is
#   taken off.
# - **RoPE**: the token at position $t = 0, 1, \dots$ turns pair $i$ of its rope part by the angle
#   $t\, \theta^{-2i / \text{rope}}$. A pair is two *neighbours*, $(a, b)$ at places $2i$ and $2i + 1$; it becomes
#   $(a \cos - b \sin,\; a \sin + b \cos)$ at the same two places. Queries are turned in each head. The rope key is
#   turned once: all heads share it.
# - **Score** of query $t$ and key $j \le t$ in head $h$: the product of the two nope parts plus that of the two rope
#   parts, over $\sqrt{\text{nope} + \text{rope}}$. Later keys do not count.
#
# | | |
# |---|---|
# | `x` | float32, (B, T, D) |
# | `theta`, `eps` | numbers, for example 10000.0 and 1e-6 |
# | `y` | float32, (B, T, D) |
# | `latent` | float32, (B, T, rank): **after** its norm |
# | `k_rope` | float32, (B, T, rope): **turned** |
#
# No two sizes are alike in general; rope is even.
#
# **Two puzzles.** Which size does no shape tell by itself, so that you need `heads`? And how would y change if
# positions began at 7? And `k_rope`?
#
# **A small example.** One head; rank, nope and rope are 2, every other size is 1. The tokens are 2 and -3. Norm
# weights, `q_a_proj` and `o_proj` are ones; `q_b_proj` is the column (1, 0, 1, 0), `kv_a_proj_with_mqa` the column
# (1, 1, 0.5, 0), and `kv_b_proj` has the rows (1, 0), (0, 0) for the key and (4, 0) for the value.
#
# - Normed, the latent vectors are (1, 1) and (-1, -1), so the values are 4 and -4.
# - The rope keys are (1, 0) and (-1.5, 0), the latter turned by 1: (-0.810, -1.262).
# - Token 0 sees itself: y = 4.
# - The query of token 1 is (-1, 0) with (-1, 0), of which the second is turned as well. Its scores are
#   (-1 - cos 1) / √4 = -0.770 and (1 + 1.5) / √4 = 1.250, its weights 0.117 and 0.883: y = -3.063.
#
# It is one of the cases. `hint("10.mla")` gives three hints.


# %% 10.mla tags=["answer", "10.mla"]
def mla(
    x: Tensor, weights: dict[str, Tensor], heads: int, theta: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Latent attention of x (B, T, D): y, and the latent and rope parts for a cache."""
    # BEGIN SOLUTION
    B, T, _ = x.shape
    rank = len(weights["kv_a_layernorm"])
    rope = len(weights["kv_a_proj_with_mqa"]) - rank
    nope = len(weights["q_b_proj"]) // heads - rope

    def norm(v: Tensor, weight: Tensor) -> Tensor:
        return v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps) * weight

    places = torch.arange(T, device=x.device)
    pairs = torch.arange(0, rope, 2, device=x.device)
    angles = places[:, None] * theta ** (-pairs / rope)

    def turn(v: Tensor) -> Tensor:
        a, b = v[..., ::2], v[..., 1::2]
        cos, sin = angles.cos(), angles.sin()
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    q = norm(x @ weights["q_a_proj"].T, weights["q_a_layernorm"])
    q = (q @ weights["q_b_proj"].T).view(B, T, heads, -1).transpose(1, 2)
    latent, k_rope = (x @ weights["kv_a_proj_with_mqa"].T).tensor_split([rank], -1)
    latent, k_rope = norm(latent, weights["kv_a_layernorm"]), turn(k_rope)
    kv = (latent @ weights["kv_b_proj"].T).view(B, T, heads, -1).transpose(1, 2)
    keys, values = kv[..., :nope], kv[..., nope:]
    scores = q[..., :nope] @ keys.mT + turn(q[..., nope:]) @ k_rope[:, None].mT
    scores = scores / math.sqrt(nope + rope)
    p = scores.masked_fill(places > places[:, None], -torch.inf).softmax(-1)
    y = (p @ values).transpose(1, 2).flatten(2) @ weights["o_proj"].T
    return y, latent, k_rope
    # END SOLUTION


# %% tags=["check"]
check("10.mla")

# %% [markdown] why mla
# **Why it matters.** These seven tensors are attention in DeepSeek-V2, V3 and R1, and this is how a prompt is read. A
# server that keeps the latent vectors before the norm, or the rope keys in another order than the one that reads them,
# gives fluent nonsense and no error.
#
# <details><summary>The puzzles</summary>
#
# nope and value: `q_b_proj` knows heads · (nope + rope), `kv_b_proj` heads · (nope + value). The number of heads
# itself is in no shape: 4 heads of 12 + 6 and 6 heads of 6 + 6 have the same `q_b_proj`. y would not change: a score
# depends on the distance of two tokens. Every rope key would be turned by 7 positions more.
#
# </details>

# %% [markdown] statement of mla_absorb
# ## 10.mla_absorb: decoding without expanding
#
# Write `mla_absorb(x, latent, k_rope, weights, heads, theta, eps)`: one or several new tokens of each sequence, behind
# a cache of S tokens. It returns `(y, latent, k_rope)`: the results of the new tokens, and the cache with them in it.
#
# | | |
# |---|---|
# | `x` | float32, (B, T, D): T new tokens, at positions S, S + 1, ... |
# | `latent` | float32, (B, S, rank), normed; S may be 0 |
# | `k_rope` | float32, (B, S, rope), turned |
# | `weights`, `heads`, `theta`, `eps` | as in 10.mla |
# | `y` | float32, (B, T, D): what 10.mla gives in its last T rows for all S + T tokens |
# | results `latent`, `k_rope` | float32, (B, S + T, rank) and (B, S + T, rope), new tensors |
#
# Among the new tokens, too, none sees a later one.
#
# **A limit.** No key and no value of a head may be made for the whole cache, nor a copy of it for each head. The check
# counts `written`: how many numbers torch's operations write in your function, views not counted. Behind a cache of
# 1,000 tokens and more these may be 3 for each number of the cache, 12 for each score and 2 for each weight. Whoever
# expands the cache writes several times that. So $W^{UK}$ has to be absorbed into the query, $W^{UV}$ into what comes
# behind the sum (lesson, section 4).
#
# **Two puzzles.** How long is a row of the absorbed query, and by the root of which size are scores divided? And
# `torch.matmul` of (B, heads, T, rank) with (B, 1, rank, S) is right: what does it do to the cache?
#
# **A small example.** The one of 10.mla, with its token 0 in the cache: `latent` is (1, 1), `k_rope` (1, 0), and `x` is
# -3. Then y is -3.063 again. `hint("10.mla_absorb")` gives three hints.


# %% 10.mla_absorb tags=["answer", "10.mla_absorb"]
def mla_absorb(
    x: Tensor,
    latent: Tensor,
    k_rope: Tensor,
    weights: dict[str, Tensor],
    heads: int,
    theta: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """T new tokens x (B, T, D) behind S cached ones: y, and the cache with them."""
    # BEGIN SOLUTION
    (B, T, _), (_, S, rank), rope = x.shape, latent.shape, k_rope.shape[2]
    nope = len(weights["q_b_proj"]) // heads - rope

    def norm(v: Tensor, weight: Tensor) -> Tensor:
        return v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps) * weight

    places = torch.arange(S + T, device=x.device)
    pairs = torch.arange(0, rope, 2, device=x.device)
    angles = places[S:, None] * theta ** (-pairs / rope)

    def turn(v: Tensor) -> Tensor:
        a, b = v[..., ::2], v[..., 1::2]
        cos, sin = angles.cos(), angles.sin()
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    q = norm(x @ weights["q_a_proj"].T, weights["q_a_layernorm"])
    q = (q @ weights["q_b_proj"].T).view(B, T, heads, -1).transpose(1, 2)
    new, new_rope = (x @ weights["kv_a_proj_with_mqa"].T).tensor_split([rank], -1)
    latent = torch.cat([latent, norm(new, weights["kv_a_layernorm"])], 1)
    k_rope = torch.cat([k_rope, turn(new_rope)], 1)
    w = weights["kv_b_proj"].view(heads, -1, rank)
    absorbed = torch.einsum("bhtn,hnc->bhtc", q[..., :nope], w[:, :nope])
    scores = torch.einsum("bhtc,bsc->bhts", absorbed, latent)
    scores = scores + torch.einsum("bhtr,bsr->bhts", turn(q[..., nope:]), k_rope)
    scores = scores / math.sqrt(nope + rope)
    p = scores.masked_fill(places > places[S:, None], -torch.inf).softmax(-1)
    sums = torch.einsum("bhts,bsc->bhtc", p, latent)
    values = torch.einsum("bhtc,hvc->bthv", sums, w[:, nope:])
    return values.flatten(2) @ weights["o_proj"].T, latent, k_rope
    # END SOLUTION


# %% tags=["check"]
check("10.mla_absorb")

# %% [markdown] why mla_absorb
# **Why it matters.** vLLM, SGLang and FlashMLA decode so. The kernel of 06.mla_decode is the middle of your function:
# absorbed queries in, sums of latent vectors out. What you do around it is torch's, there as here.
#
# <details><summary>The puzzles</summary>
#
# rank + rope numbers, and the root of nope + rope: absorbing brackets a product differently and changes no score. It
# expands the cache to (B, heads, rank, S), and where B is more than 1 it *copies* it to that size, because a batched
# product wants one matrix for each of the B · heads. With heads as rows of one matrix, (B, heads · T, rank), nothing is
# copied.
#
# </details>

# %% [markdown] payoff of latent attention
# ## What your two functions do together
#
# A layer with 16 heads and the sizes of DeepSeek-V3 divided by 8, with weights drawn at random. Your `mla` reads a
# prompt of 96 tokens, and your `mla_absorb` decodes 32 more behind it, one at a time. Beside it your `mla` reads all
# 128 at once. The bytes are those of the tensors that you keep, in float32; in bfloat16 they are half.

# %% decode behind a prompt
sizes = {"q_rank": 192, "rank": 64, "nope": 16, "rope": 8, "value": 16}
found = {}
with lesson.when_written():
    layer = lesson.drawn_mla(heads=16, width=256, **sizes)
    tokens = torch.randn(1, 128, 256)
    whole, *_ = mla(tokens, layer, 16, 1e4, 1e-6)
    y, *cache = mla(tokens[:, :96], layer, 16, 1e4, 1e-6)
    rows = [y]
    for t in range(96, 128):
        y, *cache = mla_absorb(tokens[:, t : t + 1], *cache, layer, 16, 1e4, 1e-6)
        rows.append(y)
    off = (torch.cat(rows, 1) - whole).abs().max()
    found = {
        "largest difference, decoded and at once": off,
        "largest result": whole.abs().max(),
        "bytes kept of a token": sum(part[0, 0].numel() * 4 for part in cache),
        "keys and values of 16 heads would be": 16 * (16 + 8 + 16) * 4,
    }
lesson.table(found)

# %% [markdown] part on routing
# ## Part 2: routing and balance
#
# You write a router as DeepSeek-V3 has it: a gate, the rule of groups, and the controller that keeps the experts evenly
# loaded. At the end your own three parts balance a layer.

# %% [markdown] statement of gate
# ## 10.gate: who is chosen, and how loud
#
# Write `gate(x, weight, bias, k, scale)`: the experts of each token and their weights. Token $t$ has a *score* for each
# expert $e$, between 0 and 1 and without regard to the others:
#
# $$ s_{te} = \frac{1}{1 + e^{-x_t \cdot w_e}} $$
#
# Chosen are the $k$ experts with the largest **choice value** $s_{te} + b_e$. Their weights are their **scores**,
# divided by the sum of the scores of the chosen $k$, times `scale`.
#
# | | |
# |---|---|
# | `x` | (T, D) tokens, float32 or bfloat16; any strides |
# | `weight` | (E, D), one row for each expert, float32 or bfloat16 |
# | `bias` | (E,), float32 |
# | `k`, `scale` | a whole number from 1 to E; a float above 0 |
# | result | a tuple `(weights, experts)`: float32 (T, k) and int64 (T, k) |
#
# Products, sums and sigmoids are float32, whatever comes in. Within a row any order will do, as long as weight and
# expert stand at the same place: the check sorts rows by expert before it compares. No two choice values are so near
# that rounding could swap them. Scores may be as small as 1e-7: nothing is added to a sum.
#
# **A small example.** One token, four experts with the scores 0.5, 0.5, 1 and 0, and a bias of 0.2 for expert 1. With
# k = 2 the choice values 0.5, 0.7, 1 and 0 choose experts 2 and 1. With scale = 3 their weights are
# 1 / 1.5 · 3 = 2 and 0.5 / 1.5 · 3 = 1.
#
# **Two puzzles.** What do the weights say if a constant is added to every bias? And if k is 1?
# `hint("10.gate")` gives three hints.


# %% 10.gate tags=["answer", "10.gate"]
def gate(
    x: Tensor, weight: Tensor, bias: Tensor, k: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Weights float32 (T, k) and experts int64 (T, k) of tokens x (T, D).

    >>> weight = torch.tensor([[0.0], [0.0], [99.0], [-99.0]])  # scores .5 .5 1 0
    >>> bias = torch.tensor([0.0, 0.2, 0.0, 0.0])
    >>> weights, experts = gate(torch.tensor([[1.0]]), weight, bias, k=2, scale=3.0)
    >>> sorted(zip(experts[0].tolist(), weights[0].tolist()))
    [(1, 1.0), (2, 2.0)]
    """
    # BEGIN SOLUTION
    scores = torch.sigmoid(x.float() @ weight.float().T)
    experts = (scores + bias).topk(k, dim=1).indices
    weights = scores.gather(1, experts)  # without the bias
    return weights / weights.sum(1, keepdim=True) * scale, experts
    # END SOLUTION


# %% tags=["check"]
check("10.gate")

# %% [markdown] why gate
# **Why it matters.** Each of these slips has been in a serving program: the bias in the weights
# ([vLLM #12002](https://github.com/vllm-project/vllm/pull/12002)), and the score won back as choice value minus bias,
# which is 0 where a score of 1e-7 stands beside a bias of 12
# ([FlashInfer #3875](https://github.com/flashinfer-ai/flashinfer/pull/3875)). The model still talks. It is a
# little worse, and nothing crashes.
#
# <details><summary>The puzzles</summary>
#
# Nothing changes: all choice values rise alike, and the weights never see a bias. With k = 1 the weight is `scale` for
# every token: a score divided by itself. The gate then gets no gradient through the weight at all.
#
# </details>

# %% [markdown] statement of group_limited
# ## 10.group_limited: first the groups, then the experts
#
# The experts lie in `groups` groups of neighbours: with 12 experts and 3 groups, 0 to 3, 4 to 7 and 8 to 11. In unit 11
# a group is what one node holds. Write `group_limited(scores, bias, groups, keep, k)`:
#
# 1. A **group's value** is the sum of the choice values $s_{te} + b_e$ of its two best experts.
# 2. The `keep` groups with the largest values are kept, for each token anew.
# 3. Chosen are the `k` experts with the largest choice values among the experts of the kept groups.
#
# | | |
# |---|---|
# | `scores` | (T, E), float32, above 0 |
# | `bias` | (E,), float32: **any size and sign** |
# | `groups` | divides E into groups of two experts or more |
# | `keep`, `k` | 1 to `groups`; 1 to `keep` · E / `groups` |
# | result | int64 (T, k): numbers of experts among all E, each row in any order |
#
# DeepSeek-V3 has 256 experts in 8 groups, of which 4 are kept for 8 experts. As before no two values are so near that
# rounding could swap them.
#
# **A small example.** Scores 0.9, 0.1, 0.1 | 0.6, 0.5, 0.3, no bias, one group is kept and two experts are chosen. The
# groups' values are 1.0 and 1.1: chosen are experts 3 and 4, and the best expert of all is not.
#
# **A puzzle.** Why the two best, and not the best one? `hint("10.group_limited")` gives three hints.


# %% 10.group_limited tags=["answer", "10.group_limited"]
def group_limited(
    scores: Tensor, bias: Tensor, groups: int, keep: int, k: int
) -> Tensor:
    """Experts int64 (T, k) of scores (T, E), all of them in `keep` groups.

    >>> scores = torch.tensor([[0.9, 0.1, 0.1, 0.6, 0.5, 0.3]])
    >>> sorted(group_limited(scores, torch.zeros(6), 2, 1, 2)[0].tolist())
    [3, 4]
    """
    # BEGIN SOLUTION
    choice = scores + bias
    parts = choice.view(len(scores), groups, -1)
    values = parts.topk(2, dim=2).values.sum(2)
    kept = values.topk(keep, dim=1).indices
    allowed = torch.zeros_like(values).scatter_(1, kept, 1.0) > 0
    left = parts.masked_fill(~allowed[:, :, None], -torch.inf)
    return left.flatten(1).topk(k, dim=1).indices
    # END SOLUTION


# %% tags=["check"]
check("10.group_limited")

# %% [markdown] why group_limited
# **Why it matters.** How many nodes a token is sent to decides what the network carries. Below: the nodes that a token
# of a DeepSeek-V3 layer reaches with your rule and without it, for scores drawn at random.
#
# <details><summary>The puzzle, and a trap</summary>
#
# 8 experts on 4 nodes are two for each node: a node with one good expert and nothing else would take the place of one
# with two. The trap: to mask the other groups with 0 is right as long as choice values are positive. With negative
# biases they need not be, and 0 then beats them. vLLM
# ([#13474](https://github.com/vllm-project/vllm/pull/13474)), SGLang
# ([#3705](https://github.com/sgl-project/sglang/pull/3705)) and transformers
# ([#45440](https://github.com/huggingface/transformers/issues/45440)) each had it.
#
# </details>

# %% nodes that a token reaches
rows = {}
with lesson.when_written():
    drawn = torch.Generator().manual_seed(0)
    scores = torch.sigmoid(torch.randn((4096, 256), generator=drawn))
    ways = {
        "all 256": scores.topk(8).indices,
        "4 groups of 8": group_limited(scores, torch.zeros(256), 8, 4, 8),
    }
    reached = {name: lesson.groups_reached(found, 32) for name, found in ways.items()}
    rows = {n: {"mean": r.double().mean(), "most": r.max()} for n, r in reached.items()}
lesson.table(rows, first="nodes that a token reaches")

# %% [markdown] statement of bias_update
# ## 10.bias_update: a controller for the load
#
# A training step has one batch or several (unit 01 added up their gradients). Write
# `bias_update(route, bias, steps, speed)`, which goes through all steps:
#
# - Each batch `x` of a step is routed: `weights, experts = route(x, bias)`, with shapes and dtypes as in 10.gate. **All
#   batches of a step are routed with the same bias.**
# - The step's **load** of an expert: how often it stands in `experts`, in all batches of the step together.
# - Behind the step the bias of each expert moves by `speed`: **up** where its load is below the mean load of the step's
#   experts, **down** where it is above, not at all where it is equal. The next step is routed with what is left.
#
# | | |
# |---|---|
# | `route` | a function; what is in it does not matter |
# | `bias` | float32 (E,); it is not changed, the result is a new tensor |
# | `steps` | a list of steps, each a list of batches, each a tensor (T, D) of its own T |
# | `speed` | a float above 0 |
# | result | a tuple `(bias, loads)`: float32 (E,) behind the last step, int64 (steps, E) |
#
# **A small example.** Loads 3, 5, 4, 0 of one step: the mean is 3. The biases move by 0, -speed, -speed and +speed.
#
# **Two puzzles.** The sum of all biases changes in this example. Does that matter to anyone? And an expert whose load
# jumps to and fro around the mean: how far from its best place can its bias be? `hint("10.bias_update")` gives three
# hints.


# %% 10.bias_update tags=["answer", "10.bias_update"]
def bias_update(
    route: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    bias: Tensor,
    steps: list[list[Tensor]],
    speed: float,
) -> tuple[Tensor, Tensor]:
    """The bias behind the last step, and the loads (steps, E) of all."""
    # BEGIN SOLUTION
    loads = []
    for step in steps:
        load = torch.zeros(len(bias), dtype=torch.int64, device=bias.device)
        for x in step:
            _, experts = route(x, bias)
            load += torch.bincount(experts.flatten(), minlength=len(bias))
        bias = bias + speed * torch.sign(load.float().mean() - load)
        loads.append(load)
    return bias, torch.stack(loads)
    # END SOLUTION


# %% tags=["check"]
check("10.bias_update")

# %% [markdown] why bias_update
# **Why it matters.** No gradient knows of this bias, so the loss of the model does not pay for the balance. In unit 11
# the load becomes a sum over ranks, and nothing else changes.
#
# <details><summary>The puzzles</summary>
#
# The sum does not matter: a choice depends on differences. Around its best place a bias goes one speed up, one down: it
# is off by less than a speed or so, and choice values that are further apart than that do not notice. That is why
# DeepSeek-V3 has 0.001 where scores lie between 0 and 1.
#
# </details>

# %% [markdown] payoff of routing
# ## Your router, balanced
#
# The lesson's tiny model is trained below without any balance: 16 experts, 2 for each token, 120 steps. Then it is
# frozen, and reads new text with **your** `gate` as its router, while **your** `bias_update` runs the controller: 300
# steps of 256 tokens at a speed of 0.005. Nothing learns but 16 biases. What do you expect of the imbalance (largest
# load over the mean), which was between 2 and 5? And of the loss, whose experts never saw these tokens?

# %% your router
rows = {}
with lesson.when_written():
    corpus = lesson.load_corpus(lesson.TrainConfig.preset("cpu").corpus)
    model = lesson.routed_run(lesson.RoutedConfig(steps=120), corpus.train, 1).model
    ids = torch.from_numpy(corpus.train[: 300 * 256].astype("int64")).view(300, 8, 32)
    x = model.tokens(ids).detach().flatten(1, 2)  # (steps, tokens, D)
    weight = model.gate.detach()

    def route(x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return gate(x, weight, bias, k=2, scale=1.0)

    bias, loads = bias_update(route, torch.zeros(16), [[x_t] for x_t in x], 0.005)
    even = {"your bias": [lesson.imbalance(load) for load in loads]}
    lesson.curves(even, "imbalance of each step", levels={"perfectly even": 1.0})

    val = torch.from_numpy(corpus.val[:8193].astype("int64"))
    for name, b in {"no bias": torch.zeros(16), "your bias": bias}.items():
        model.bias.copy_(b)
        with torch.no_grad():
            logits, experts, _ = model(val[:-1].view(256, 32))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), val[1:])
        load = lesson.loads(experts, 16)
        rows[name] = {"loss, nats": loss, "imbalance": lesson.imbalance(load)}
lesson.table(rows, first="validation text")

# %% [markdown] what it costs explained
# The layer is done earlier by the ratio of the second column, and the loss is a little higher: tokens are computed by
# experts that learned on others. In a real training the bias works from the first step on, so that every expert learns
# on what it will get.

# %% [markdown] part of the kernels
# ## Part 3: kernels of a layer of experts

# %% [markdown] statement of permute
# ## 10.permute: tokens to their experts
#
# Each of T tokens has chosen k different experts of E. Write `permute(x, experts, num_experts, tile)`, by kernels of
# your own: the rows of `x`, sorted by expert, so that each expert's rows are one stretch.
#
# | | |
# |---|---|
# | `x` | float16 or bfloat16, (T, D), T and D of 1 and more; elements of a row are neighbours, rows may lie apart |
# | `experts` | int64, (T, k), contiguous: the experts of each token, different within a row |
# | `num_experts` | E, at most 64; an expert may be chosen by nobody |
# | `tile` | a stretch has a multiple of this many rows; a power of two, 1 too |
#
# Return four tensors, `rows, source, offsets, position`; the last three hold whole numbers (int32 or int64):
#
# | | |
# |---|---|
# | `offsets` | (E + 1,): expert e has `rows[offsets[e]:offsets[e + 1]]`, tokens rounded up to tiles; the last is R |
# | `rows` | (R, D), dtype of `x`: in a stretch first the tokens' rows, **by token number**, then rows of zeros |
# | `source` | (R,): the token that a row came from; -1 for a row of zeros |
# | `position` | (T, k): the row where token t is for its choice j |
#
# The result must not depend on luck: each check runs your answer once more with programs in another order.
#
# **What torch may do**: make tensors (`torch.zeros`, `torch.full`, ...) and views, and tell you a number that a kernel
# computed, by `item()` or `tolist()`: R, say. It does not count, sort, add up or copy.
#
# **Limits.** `launches`: 4 at most, so 8 in the two runs of a check. `blocks`: at least as many as tokens, up to 16.
# `global_load_sectors`, where D is a multiple of 128: each row of `x` once (10% above), `experts` three times for each
# expert, and 8 for each entry of it. `global_store_bytes`: each row once, with E * (tile - 1) rows of padding at most,
# and the small tensors. `scratch_bytes`: 0.
#
# **A small example.** Four tokens, k = 2, E = 3, tile = 4:
#
# | | |
# |---|---|
# | `experts` | (2, 0), (0, 1), (2, 1), (0, 2) |
# | counts | 3, 2, 3 |
# | `offsets` | 0, 4, 8, 12 |
# | `source` | 0, 1, 3, -1, 1, 2, -1, -1, 0, 2, 3, -1 |
# | `position` | (8, 0), (1, 4), (9, 5), (2, 10) |
#
# **Puzzles.** What would `tl.atomic_add(filled + expert, 1)` give to two tokens that want the same expert? Which of
# the two copies reads less: one program for each row of the result, or one for each token?
#
# The parameters of the kernels below are a proposal; other kernels will do as well. **Triton that helps.**
# `tl.cumsum(x, 0)`: sums up to and with each element. `tl.sum(x)` of a block of 0 and 1 counts.
# `hint("10.permute")` gives three hints.


# %% 10.permute tags=["answer", "10.permute"]
@triton.jit
def count_kernel(experts_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    """How many entries each expert has."""
    # BEGIN SOLUTION
    expert = tl.program_id(0)
    total = 0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        chosen = tl.load(experts_ptr + at, mask=at < n, other=-1)
        total += tl.sum((chosen == expert).to(tl.int32))
    tl.store(counts_ptr + expert, total)
    # END SOLUTION


@triton.jit
def place_kernel(
    experts_ptr, counts_ptr, offsets_ptr, position_ptr, n, E, tile,
    BLOCK: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """Where stretches begin, and in which row each entry lands."""
    # BEGIN SOLUTION
    expert = tl.program_id(0)
    one = tl.arange(0, MOST)
    counts = tl.load(counts_ptr + one, mask=one < E, other=0)
    padded = tl.cdiv(counts, tile) * tile
    first = tl.sum(tl.where(one < expert, padded, 0))
    tl.store(offsets_ptr + expert, first)
    tl.store(offsets_ptr + E, tl.sum(padded), mask=expert == E - 1)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        chosen = tl.load(experts_ptr + at, mask=at < n, other=-1)
        here = (chosen == expert).to(tl.int32)
        rank = tl.cumsum(here, 0) - 1
        tl.store(position_ptr + at, first + rank, mask=here > 0)
        first += tl.sum(here)
    # END SOLUTION


@triton.jit
def copy_kernel(
    x_ptr, position_ptr, rows_ptr, source_ptr, D, k, stride, BLOCK: tl.constexpr
):
    """Rows of x to their places."""
    # BEGIN SOLUTION
    token = tl.program_id(0)
    d = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + token * stride + d, mask=d < D)
    for j in range(0, k):
        row = tl.load(position_ptr + token * k + j)
        tl.store(rows_ptr + row.to(tl.int64) * D + d, x, mask=d < D)
        tl.store(source_ptr + row, token)
    # END SOLUTION


def permute(
    x: Tensor, experts: Tensor, num_experts: int, tile: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of x by expert, padded to tiles; their tokens; offsets; where tokens are."""
    # BEGIN SOLUTION
    (T, D), k = x.shape, experts.shape[1]
    new = {"dtype": torch.int32, "device": x.device}
    counts = torch.empty(num_experts, **new)
    offsets = torch.zeros(num_experts + 1, **new)
    position = torch.empty((T, k), **new)
    most = triton.next_power_of_2(num_experts)
    count_kernel[(num_experts,)](experts, counts, T * k, BLOCK=256)
    place_kernel[(num_experts,)](
        experts, counts, offsets, position, T * k, num_experts, tile,
        BLOCK=256, MOST=most,
    )  # fmt: skip
    size = offsets[-1].item()
    rows = torch.zeros((size, D), dtype=x.dtype, device=x.device)
    source = torch.full((size,), -1, **new)
    block = triton.next_power_of_2(D)
    copy_kernel[(T,)](x, position, rows, source, D, k, x.stride(0), BLOCK=block)
    return rows, source, offsets, position
    # END SOLUTION


# %% tags=["check"]
check("10.permute")

# %% [markdown] why permute
# **Why it matters.** Every engine that serves mixtures of experts has this step; vLLM's is called
# [moe_align_block_size](https://docs.vllm.ai/en/stable/api/vllm/model_executor/layers/fused_moe/moe_align_block_size/).
# With an order that luck decides, the same prompt may get other bits in the next run, for sums over rows (the gradient
# of an expert's weights is one) are rounded in their order.
#
# <details><summary>The puzzles</summary>
#
# Two different rows, and who gets which depends on who comes first: right as a set, another order in each run. A
# program for each token loads its row once and stores it k times; one for each row of the result loads k times as much.
#
# </details>

# %% [markdown] statement of grouped_gemm
# ## 10.grouped_gemm: all experts in one launch
#
# Write `grouped_gemm(rows, weights, offsets, programs)`: each stretch of rows times the weights of its expert,
#
# $$ \text{out}_r = W_{e(r)}\, \text{rows}_r, \qquad \text{offsets}_e \le r < \text{offsets}_{e+1} $$
#
# as one launch of one persistent kernel.
#
# | | |
# |---|---|
# | `rows` | float16 or bfloat16, (R, K), contiguous, as `permute` makes them with tiles of 64 |
# | `weights` | dtype of `rows`, (E, N, K), contiguous; E of 1 to 16, N and K of 1 and more |
# | `offsets` | int32, (E + 1,), multiples of 64, from 0 to R; two that are equal are an expert without rows |
# | `programs` | how many programs the chip runs at a time, 1 or more |
# | result | (R, N), contiguous, dtype of `rows`; summed in float32 and rounded once. Rows of zeros give zeros |
#
# A tile of the result has 64 x 64 elements (the step along K is yours).
#
# **Limits.** `launches`: 1. `blocks`: `min(programs, tiles)`, no more and no fewer. `matrix_flops`: at least 2 R N K.
# `global_store_bytes`: each element once. `scratch_bytes`: 0. Where N and K are multiples of 64: `matrix_flops` at
# most 2.05 times 2 R N K, so no tile that is nobody's, and none twice; `global_load_bytes` at most 1.5 times what
# tiles of 64 x 64 load, and 4 KiB for each of them; `uneven_loads`: an even share of the tiles, as in 05.persistent.
# torch makes tensors, and computes nothing: the offsets are read by the kernel.
#
# **A small example.** Offsets 0, 128, 128, 192 and N = 128: three rows of tiles, two of expert 0 and one of expert 2,
# with two tiles each: six tiles. With four programs, program 0 may take tiles 0 and 4, and program 3 tile 3 alone.
#
# **Puzzles.** Which masks of 05.persistent are not needed here, and why? What does an expert cost that has no rows?
#
# `hint("10.grouped_gemm")` gives three hints.


# %% 10.grouped_gemm tags=["answer", "10.grouped_gemm"]
@triton.jit
def grouped_kernel(
    rows_ptr, weights_ptr, offsets_ptr, out_ptr, R, N, K, E,
    TILE: tl.constexpr, STEP: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """Programs that walk over the tiles of all experts."""
    # BEGIN SOLUTION
    one = tl.arange(0, MOST)
    ends = tl.load(offsets_ptr + 1 + one, mask=one < E, other=R)
    tiles_n = tl.cdiv(N, TILE)
    tiles = R // TILE * tiles_n
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        first = tile // tiles_n * TILE
        expert = tl.sum((ends <= first).to(tl.int32))
        w_ptr = weights_ptr + expert.to(tl.int64) * N * K
        m = first + tl.arange(0, TILE)[:, None]
        n = tile % tiles_n * TILE + tl.arange(0, TILE)[None, :]
        acc = tl.zeros((TILE, TILE), tl.float32)
        for start in range(0, K, STEP):
            k = start + tl.arange(0, STEP)
            a = tl.load(rows_ptr + m * K + k[None, :], mask=k[None, :] < K, other=0.0)
            b_mask = (k[:, None] < K) & (n < N)
            b = tl.load(w_ptr + n * K + k[:, None], mask=b_mask, other=0.0)
            acc = tl.dot(a, b, acc)
        tl.store(out_ptr + m * N + n, acc, mask=n < N)
    # END SOLUTION


def grouped_gemm(
    rows: Tensor, weights: Tensor, offsets: Tensor, programs: int
) -> Tensor:
    """Each stretch of rows (R, K) times its expert's weights (E, N, K): (R, N)."""
    # BEGIN SOLUTION
    (R, K), (E, N, _) = rows.shape, weights.shape
    out = torch.empty((R, N), dtype=rows.dtype, device=rows.device)
    grid = (min(programs, R // 64 * triton.cdiv(N, 64)),)
    most = triton.next_power_of_2(E)
    grouped_kernel[grid](
        rows, weights, offsets, out, R, N, K, E, TILE=64, STEP=32, MOST=most
    )
    return out
    # END SOLUTION


# %% tags=["check"]
check("10.grouped_gemm")

# %% [markdown] why grouped_gemm
# **Why it matters.** Most FLOPs of a mixture of experts are these products. Libraries of both vendors have them; the
# layout with stretches that begin at multiples of a tile is the one that
# [DeepGEMM](https://github.com/deepseek-ai/DeepGEMM) calls contiguous.
#
# <details><summary>The puzzles</summary>
#
# Rows need no mask, neither at the loads nor at the store: stretches are whole tiles. K and N need theirs. An expert
# without rows has no tile, and costs nothing.
#
# </details>

# %% [markdown] payoff of the kernels
# ## A layer of experts by your own kernels
#
# Eight experts, three for each token, each of them two products with a SiLU between: tokens to experts, up, SiLU, down,
# and back. The way back is the one kernel that stands here ready: a program for each token fetches its k rows from
# where `position` says they are, weighs them, and adds them up in the order of its choices. It needs no atomic, so the
# order of the programs cannot show.


# %% a way back
@triton.jit
def gather_kernel(y_ptr, position_ptr, weights_ptr, out_ptr, D, k, BLOCK: tl.constexpr):
    token, d = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for j in range(0, k):
        row = tl.load(position_ptr + token * k + j)
        y = tl.load(y_ptr + row.to(tl.int64) * D + d, mask=d < D)
        total += tl.load(weights_ptr + token * k + j) * y.to(tl.float32)
    tl.store(out_ptr + token * D + d, total, mask=d < D)


def own_layer(x, experts, weights, up, down, programs=16):
    """Your permute and grouped_gemm twice, SiLU between them, and the way back."""
    rows, _, offsets, position = permute(x, experts, len(up), 64)
    hidden = torch.nn.functional.silu(grouped_gemm(rows, up, offsets, programs))
    y = grouped_gemm(hidden, down, offsets, programs)
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    (T, D), k = x.shape, experts.shape[1]
    block = triton.next_power_of_2(D)
    gather_kernel[(T,)](y, position.int(), weights, out, D, k, BLOCK=block)
    return out


# %% the loop over experts
def loop_layer(x, experts, weights, up, down):
    """The same in float64, expert by expert."""
    out = torch.zeros(x.shape, dtype=torch.float64)
    x, up, down = x.double(), up.double(), down.double()
    for e in range(len(up)):
        token, choice = (experts == e).nonzero(as_tuple=True)
        y = torch.nn.functional.silu(x[token] @ up[e].T) @ down[e].T
        out.index_add_(0, token, y * weights[token, choice, None].double())
    return out


# %% your kernels as a layer
torch.manual_seed(0)
T, D, H, E = 96, 64, 128, 8
x = torch.randn(T, D).half()
up, down = torch.randn(E, H, D).half() / D**0.5, torch.randn(E, D, H).half() / H**0.5
weights, experts = torch.randn(T, E).sigmoid().topk(3)
exact = loop_layer(x, experts, weights, up, down)
seen = {}
with lesson.when_written():
    for target in ("sm_80", "gfx942"):
        with virtual_gpu(target) as gpu:
            own = own_layer(x, experts, weights, up, down)
        with virtual_gpu(target, order="shuffled", seed=1):
            again = own_layer(x, experts, weights, up, down)
        seen[target] = {
            "largest error": (own - exact).abs().max(),
            "largest value": exact.abs().max(),
            "the same bits in another order": torch.equal(own, again),
            "launches": len(gpu.launches),
        }
lesson.table(seen, first="target")

# %% [markdown] end of the kernels part
# The error is that of rounding to fp16: hidden values and results of the experts are 16 bits wide. The bits are the
# same whichever program came first, and with three terms a sum in another order would show. And the launches are as
# many with 256 experts; a loop would have two products for each expert that has a token.

# %% [markdown] challenge of the kernels
# ## A challenge: eight experts in the fewest cycles
#
# Optional, and against yourself alone. Your `grouped_gemm` gets eight uneven experts with K = 256 on both virtual GPUs;
# the predicted cycles are added up. Only a right answer enters, within the limits of 10.grouped_gemm.

# %% your entry of unit 10
from gpu_utils import challenge

challenge("10")

# %% [markdown] part four
# ## Part 4: the model

# %% [markdown] statement of moe_block
# ## 10.moe_block: a mixture of experts with a shared one
#
# Write `moe_block(...)`: what a layer of experts makes of `T` tokens. The gate has done its work: `experts` says where
# each token goes, `weights` how much each counts. $S_e$ is the SwiGLU of expert $e$, $S$ that of the shared expert:
#
# $$ y_t = \sum_{j=1}^{k} w_{t,j}\, S_{e_{t,j}}(x_t) + S(x_t), \qquad
# S_e(x) = \bigl(\operatorname{silu}(x\, G_e^T) \odot x\, U_e^T\bigr)\, V_e^T, \qquad
# \operatorname{silu}(z) = z / (1 + e^{-z}) $$
#
# | | |
# |---|---|
# | `x` | (T, D), float32 or bfloat16 |
# | `weights` | (T, k), float32; row t belongs to row t of `experts`. Used as they are: their sum is not 1 in general |
# | `experts` | (T, k), int64, numbers from 0 up to E - 1; those of a token differ |
# | `gate`, `up` | $G$ and $U$: (E, I, D), for E experts of expert width I, dtype of `x` |
# | `down` | $V$: (E, D, I) |
# | `shared_gate`, `shared_up`, `shared_down` | (S, D), (S, D), (D, S), with a width S of its own |
# | result | (T, D), **dtype of `x`**; no argument is changed |
#
# The check goes backward, too: autograd must find its way from `y` to `x`, to `weights` and to all six matrices. And it
# counts: `work` is the FLOPs of your forward pass's matrix products over those that the chosen experts and the shared
# one need. It may be 1.1 at most, so **an expert computes the tokens that chose it, and no others**. Some experts are
# chosen by nobody.
#
# **A puzzle.** With E experts and k for each token, how many times the routed work does a layer do in which every
# expert computes every token? And for DeepSeek-V3?
#
# **A small example.** One token, x = (1, 2), two experts of expert width 1. Expert 1 has $G$ = (1, 0), $U$ = (0, 1),
# $V$ = (1, 0): silu(1) · 2 = 0.731 · 2 = 1.462, so it gives (1.462, 0). With k = 1, weight 0.5 and a shared expert of
# zeros, y is (0.731, 0). `hint("10.moe_block")` gives three hints.


# %% 10.moe_block tags=["answer", "10.moe_block"]
def moe_block(
    x: Tensor,
    weights: Tensor,
    experts: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    shared_gate: Tensor,
    shared_up: Tensor,
    shared_down: Tensor,
) -> Tensor:
    """Routed experts for the tokens that chose them, and the shared expert for all.

    >>> x, zeros = torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2)
    >>> gate = torch.tensor([[[0.0, 0.0]], [[1.0, 0.0]]])  # two experts
    >>> up = torch.tensor([[[0.0, 0.0]], [[0.0, 1.0]]])
    >>> down = torch.tensor([[[0.0], [0.0]], [[1.0], [0.0]]])
    >>> half, one = torch.tensor([[0.5]]), torch.tensor([[1]])
    >>> y = moe_block(x, half, one, gate, up, down, zeros, zeros, zeros.T)
    >>> [round(value, 3) for value in y[0].tolist()]
    [0.731, 0.0]
    """
    # BEGIN SOLUTION
    y = (F.silu(x @ shared_gate.T) * (x @ shared_up.T)) @ shared_down.T
    for e in range(len(gate)):
        token, place = (experts == e).nonzero(as_tuple=True)
        rows = x[token]
        part = (F.silu(rows @ gate[e].T) * (rows @ up[e].T)) @ down[e].T
        part = part * weights[token, place].unsqueeze(1)
        y = y.index_add(0, token, part.to(y.dtype))
    return y
    # END SOLUTION


# %% tags=["check"]
check("10.moe_block")

# %% [markdown] why moe_block
# **Why it matters.** This loop is the yardstick of every fused kernel for experts: same rows, same weights, same sums.
# On a GPU its E small products, each of another height, leave most of the chip idle; that is what the grouped GEMM of
# part 3 is for.
#
# <details><summary>The puzzle</summary>
#
# E / k times: 4 with 8 experts and 2 chosen, 32 with DeepSeek-V3's 256 and 8.
#
# </details>

# %% [markdown] statement of mtp
# ## 10.mtp: the loss of the token after the next
#
# Write `mtp(...)`: the loss of a module of multi-token prediction. For position $i$ it takes the main model's hidden
# state $h_i$, which has seen the tokens up to $t_i$, and the embedding of the *next* token $t_{i+1}$, and predicts
# the one after that, $t_{i+2}$. With $\operatorname{rms}_g(x) = g \odot x / \sqrt{\operatorname{mean}(x^2) + 10^{-6}}$:
#
# $$ z_i = P\, \bigl[\operatorname{rms}_e(E_{t_{i+1}})\,;\, \operatorname{rms}_h(h_i)\bigr], \qquad
# \text{logits}_i = H\, \operatorname{rms}_n\bigl(\text{block}(z)_i\bigr) $$
#
# and the loss is `weight` times the mean of the cross-entropies
# $-\ln \operatorname{softmax}(\text{logits}_i)_{t_{i+2}}$.
#
# | | |
# |---|---|
# | `hidden` | $h$: (B, T, D), float32, what the main model's head reads, of tokens 0 to T - 1 |
# | `tokens` | (B, T), int64, T of 3 or more. The end of a row may be filled up with `pad` |
# | `embedding` | $E$: (V, D), the main model's |
# | `enorm`, `hnorm`, `norm` | the weights $g$ of the three norms, (D,) each |
# | `projection` | $P$: (D, 2D), (out, in). The embedding's half comes first |
# | `block` | a function: (B, positions, D) to the same shape. It is causal and knows the order of positions |
# | `head` | $H$: (V, D), the main model's |
# | `weight` | a float, $\lambda$ |
# | `pad` | a token's number: a position whose target is `pad` does not count, in the sum nor in the mean |
# | result | a tensor of shape (), float32, in nats |
#
# The check goes backward to `hidden`, `embedding`, `projection` and `head`.
#
# (The V3 report's formula writes the hidden state first in the brackets. The published weights have the embedding's
# columns first, and so have the programs that read them: here it is as in the weights.)
#
# **A puzzle.** T tokens give the main model T - 1 targets. How many has this loss? And why must the embedding be that
# of $t_{i+1}$ and not of $t_i$, when the second token is drafted from the first?
#
# **A small example.** With a head of zeros every token is as likely as another: for V = 4 the cross-entropy is ln 4,
# whatever goes in. With `weight` 0.5 the loss is 0.693. `hint("10.mtp")` gives three hints.


# %% 10.mtp tags=["answer", "10.mtp"]
def mtp(
    hidden: Tensor,
    tokens: Tensor,
    embedding: Tensor,
    enorm: Tensor,
    hnorm: Tensor,
    projection: Tensor,
    block,
    norm: Tensor,
    head: Tensor,
    weight: float,
    pad: int,
) -> Tensor:
    """`weight` times the mean cross-entropy of the token after the next: a float32 scalar."""

    # BEGIN SOLUTION
    def rms(x: Tensor, gain: Tensor) -> Tensor:
        return F.rms_norm(x, gain.shape, gain, 1e-6)

    following = embedding[tokens[:, 1:-1]]
    both = torch.cat([rms(following, enorm), rms(hidden[:, :-2], hnorm)], dim=-1)
    z = block(both @ projection.T)
    logits = (rms(z, norm) @ head.T).flatten(0, 1)
    targets = tokens[:, 2:].flatten()
    return weight * F.cross_entropy(logits, targets, ignore_index=pad)
    # END SOLUTION


# %% tags=["check"]
check("10.mtp")

# %% [markdown] why mtp
# **Why it matters.** One position off, and the module predicts what it was told: the loss falls like a stone, and as a
# draft it is worth nothing. No error says so.
#
# <details><summary>The puzzles</summary>
#
# T - 2 in a row without pads. When the module drafts, the main model has just chosen $t_{i+1}$: the second guess must
# know the first, or the two need not fit together.
#
# </details>

# %% [markdown] payoff of the model
# ## Your parts, in the model
#
# The small DeepSeek with your parts in place of the library's: 12 steps of training from the same weights, on the same
# batches. Hand over those that you have; `mla=mla, gate=gate, bias_update=bias_update` join from parts 1 and 2. Bound:
# four times what a change of all weights by 16 roundings does to the library's own losses.

# %% your model
own = None
with lesson.when_written():
    own = lesson.own_deepseek(moe_block=moe_block, mtp=mtp)
lesson.table(own.rows if own else {}, first="step")

# %% your model agrees
lesson.table(
    {"largest gap": own.gap, "bound": own.bound, "within it": own.same}
    if own
    else {"largest gap": "after your parts are written"}
)

# %% [markdown] end of the lab
# ## Done
#
# From the bytes of a cache to a model that trains with your own parts. Unit 11 spreads its experts over ranks.

# %% progress
progress()
