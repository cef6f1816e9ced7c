# %% [markdown] top
# # Lab 01: a GPT-2 of your own, and what it costs
#
# You write the parts of GPT-2 from raw tensors: attention, the MLP, a block, the first weights, the way from tokens to
# logits. You write what trains it: gradient accumulation, the schedule, and a training step that you repair. You write
# the cache that makes it generate. In between you decide three things by counting: how wide a modern block may be, from
# which length on attention costs most, which batch fits into 80 GB. At the end your parts are put together, compared
# with the published architecture, trained, and asked to write.
#
# - **First**: lesson 01. What an exercise needs beyond it stands above the exercise.
# - **Time**: about two and a half hours for twelve exercises. A good place to stop is after 01.logits. Nothing here
#   needs a GPU. Where there is one, the tensor exercises run on it, NVIDIA or AMD; where there is none, the check still
#   finds a tensor that would be on the wrong device.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("01.attention")` gives three hints of growing
#   strength. `solution("01.attention")` asks first.
#
# Symbols in this lab: $B$ batch, $T$ tokens in a sequence, $d$ width (`n_embd`), $H$ heads (`n_head`), $D = d / H$ head
# width, $L$ layers, $V$ vocabulary. All weights have the layout of `nn.Linear`: (out, in), so that
# `F.linear(x, w, b)` is $x w^\top + b$.

# %% imports tags=["setup"]
import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gpu_utils import check, hint, progress, solution

# %% [markdown] statement of attention
# ## 01.attention: causal multi-head attention
#
# One linear layer makes queries, keys and values side by side, in this order, each of width $d$:
# $[Q \mid K \mid V] = x\,W_{qkv}^\top + b_{qkv}$. Head $h$ works on channels $hD$ to $(h+1)D - 1$ of each. For a query
# at position $i$ and keys at $j \le i$:
#
# $$ s_{ij} = \frac{q_i \cdot k_j}{\sqrt{D}}, \qquad p_{ij} = \frac{e^{s_{ij}}}{\sum_{m \le i} e^{s_{im}}}, \qquad
# o_i = \sum_{j \le i} p_{ij}\, v_j $$
#
# The outputs of the heads stand side by side again and pass through a last linear layer: $y = o\,W_{proj}^\top +
# b_{proj}$.
#
# | | shape | |
# |---|---|---|
# | `x` | (B, T, d) | float32 or bfloat16; every other tensor has the same dtype |
# | `w_qkv`, `b_qkv` | (3d, d), (3d,) | |
# | `w_proj`, `b_proj` | (d, d), (d,) | |
# | `n_head` | int | divides d |
# | result | (B, T, d) | same dtype and device as `x` |
#
# **A small example.** One head, three tokens, all scores equal: the first output is $v_0$, the second is
# $(v_0 + v_1)/2$, the third is $(v_0 + v_1 + v_2)/3$.
#
# Write the scores, the mask and the softmax yourself: `F.scaled_dot_product_attention` is refused here, because unit 06
# turns exactly these lines into a kernel. Make new tensors where `x` is (`device=x.device`). At the end of the lab this
# function is trained, and so are `mlp`, `block` and `logits`: the check wants a gradient for every tensor that they
# get. `hint("01.attention")` gives three hints.


# %% 01.attention tags=["answer", "01.attention"]
def attention(
    x: Tensor,
    w_qkv: Tensor,
    b_qkv: Tensor,
    w_proj: Tensor,
    b_proj: Tensor,
    n_head: int,
) -> Tensor:
    """Causal multi-head attention: x (B, T, d) -> (B, T, d).

    >>> eye, zero = torch.eye(1), torch.zeros(1)
    >>> x = torch.tensor([[[1.0], [3.0], [8.0]]])
    >>> only_v = torch.tensor([[0.0], [0.0], [1.0]])
    >>> attention(x, only_v, torch.zeros(3), eye, zero, n_head=1).flatten().tolist()
    [1.0, 2.0, 4.0]
    """
    # BEGIN SOLUTION
    B, T, d = x.shape
    qkv = F.linear(x, w_qkv, b_qkv)
    by_head = (B, T, n_head, d // n_head)
    q, k, v = (part.view(by_head).transpose(1, 2) for part in qkv.split(d, dim=-1))
    scores = q @ k.transpose(-2, -1) / math.sqrt(d // n_head)
    future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
    weights = scores.masked_fill(future, -math.inf).softmax(dim=-1)
    merged = (weights @ v).transpose(1, 2).reshape(B, T, d)
    return F.linear(merged, w_proj, b_proj)
    # END SOLUTION


# %% tags=["check"]
check("01.attention")

# %% [markdown] why attention
# **Why it matters.** Count the traffic: the scores are $B H T^2$ numbers, written by the product, read and written
# again by the scaling, the mask and the softmax, and read by the last product. At $T = 1024$ and $D = 64$ a head's
# scores are 16 times as large as its queries. This is why a fused kernel wins, although it does no fewer FLOPs.

# %% [markdown] statement of mlp
# ## 01.mlp: the feed-forward half
#
# $$ y = \mathrm{gelu}(x\,W_{fc}^\top + b_{fc})\,W_{proj}^\top + b_{proj}, \qquad
# \mathrm{gelu}(z) = \tfrac{1}{2} z \left(1 + \tanh\!\left(\sqrt{2/\pi}\,(z + 0.044715\,z^3)\right)\right) $$
#
# This is the tanh form of GELU, with which GPT-2 was trained. The exact form uses the error function instead; they
# differ by less than 0.001, and the check sees it.
#
# | | shape | |
# |---|---|---|
# | `x` | (B, T, d) | float32 or bfloat16; every other tensor has the same dtype |
# | `w_fc`, `b_fc` | (4d, d), (4d,) | |
# | `w_proj`, `b_proj` | (d, 4d), (d,) | |
# | result | (B, T, d) | same dtype and device as `x` |
#
# **A small example.** $\mathrm{gelu}(1) = 0.8412$ and $\mathrm{gelu}(-1) = -0.1588$ in the tanh form; the exact form
# gives $0.8413$ and $-0.1587$. All of `torch.nn.functional` is allowed. `hint("01.mlp")` gives three hints.


# %% 01.mlp tags=["answer", "01.mlp"]
def mlp(
    x: Tensor,
    w_fc: Tensor,
    b_fc: Tensor,
    w_proj: Tensor,
    b_proj: Tensor,
) -> Tensor:
    """Linear to 4d, tanh GELU, linear back to d: x (B, T, d) -> (B, T, d).

    >>> x, ones = torch.ones(1, 1, 1), torch.ones(4, 1)
    >>> mlp(x, ones, torch.zeros(4), ones.T / 4, torch.zeros(1)).item()  # gelu(1)
    0.8411920070648193
    """
    # BEGIN SOLUTION
    hidden = F.linear(x, w_fc, b_fc)
    hidden = F.gelu(hidden, approximate="tanh")
    return F.linear(hidden, w_proj, b_proj)
    # END SOLUTION


# %% tags=["check"]
check("01.mlp")

# %% [markdown] why mlp
# **Why it matters.** Two thirds of a layer's weights are here: $8d^2$ of $12d^2$. And the constant to remember from
# this exercise is not 0.044715, it is this: when a port is off in the fourth digit everywhere, look for another form
# of the same function before you look for a bug in a kernel.

# %% [markdown] statement of block
# ## 01.block: a block that can keep its input alone
#
# $$ x' = x + \mathrm{attention}(\mathrm{norm}_1(x)), \qquad y = x' + \mathrm{mlp}(\mathrm{norm}_2(x')) $$
#
# with $\mathrm{norm}(x) = \dfrac{x - \mu}{\sqrt{\sigma^2 + 10^{-5}}}\, w + b$; mean $\mu$ and variance $\sigma^2$ are
# those of one token's $d$ channels, and the variance divides by $d$.
#
# New is `recompute`. Where it is true, forward may leave **nothing but `x`** (and the weights) behind for backward:
# what backward needs is computed a second time, when its turn comes. This is called **activation checkpointing**; it
# lets runs fit that would not. `torch.utils.checkpoint.checkpoint` does it for a function of yours; `help(checkpoint)`
# says how. The check asks autograd what was kept.
#
# `x` is (B, T, d), float32 or bfloat16. `params` is a dict with the tensors of one block, under the names of GPT-2:
#
# | name | shape | | name | shape |
# |---|---|---|---|---|
# | `ln_1.weight`, `ln_1.bias` | (d,) | | `ln_2.weight`, `ln_2.bias` | (d,) |
# | `attn.c_attn.weight`, `.bias` | (3d, d), (3d,) | | `mlp.c_fc.weight`, `.bias` | (4d, d), (4d,) |
# | `attn.c_proj.weight`, `.bias` | (d, d), (d,) | | `mlp.c_proj.weight`, `.bias` | (d, 4d), (d,) |
#
# `attention` and `mlp` are given to you as functions, called as in the two exercises before. The check passes the
# course's, so that this exercise does not depend on the two before it; at the end of the lab yours are passed.
# `F.layer_norm(x, (d,), weight, bias)` has the right epsilon by default.
#
# **A small example.** A token with channels (3, 5) has mean 4 and variance 1, so its norm is $(-1, 1)$ times $w$ plus
# $b$. If both branches give 0, the block returns its input unchanged. `hint("01.block")` gives three hints.


# %% 01.block tags=["answer", "01.block"]
def block(
    x: Tensor,
    params: dict[str, Tensor],
    n_head: int,
    attention,
    mlp,
    recompute: bool,
) -> Tensor:
    """One pre-norm block: x (B, T, d) -> (B, T, d); recompute keeps x alone."""

    def pair(name: str) -> tuple[Tensor, Tensor]:
        return params[f"{name}.weight"], params[f"{name}.bias"]

    # BEGIN SOLUTION
    def whole(x: Tensor) -> Tensor:
        d = x.shape[-1]
        h = F.layer_norm(x, (d,), *pair("ln_1"))
        x = x + attention(h, *pair("attn.c_attn"), *pair("attn.c_proj"), n_head)
        h = F.layer_norm(x, (d,), *pair("ln_2"))
        return x + mlp(h, *pair("mlp.c_fc"), *pair("mlp.c_proj"))

    return checkpoint(whole, x, use_reentrant=False) if recompute else whole(x)
    # END SOLUTION


# %% tags=["check"]
check("01.block")

# %% [markdown] why block
# **Why it matters.** Nothing but additions touches the stream between the embedding and the last norm. That is what
# lets gradients reach the first layer, and what makes the next exercise necessary. And recomputing trades: of the
# 32 numbers a token and channel that GPT-2's block keeps at $T = 1024$ (16 with fused attention), one stays, for a
# second forward: 4 FLOPs in place of 3.

# %% [markdown] statement of init
# ## 01.init: the first weights
#
# Every layer adds two branches to the residual stream, $2L$ in all. If each branch has variance $s^2$, their sum has
# $2L\,s^2$. GPT-2 therefore draws the weights that end a branch smaller, by $1/\sqrt{2L}$:
#
# | name ends in | values |
# |---|---|
# | `bias` | 0 |
# | `ln_1.weight`, `ln_2.weight`, `ln_f.weight` | 1 |
# | `c_proj.weight` | normal, mean 0, standard deviation $0.02/\sqrt{2L}$ |
# | `wte.weight`, `wpe.weight`, `c_attn.weight`, `c_fc.weight` | normal, mean 0, standard deviation $0.02$ |
# | `lm_head.weight` | no values of its own: it **is** the tensor `wte.weight` |
#
# `shapes` is a dict from name to shape, for example `{"wte.weight": [50257, 768], ..., "h.0.attn.c_proj.bias": [768],
# ..., "lm_head.weight": [50257, 768]}`. Return a dict with the same names and float32 tensors on the CPU. The same
# `seed` must give the same numbers, another seed others, and no two layers may hold the same numbers. Draw from
# `torch.Generator().manual_seed(seed)`; `torch.randn(shape, generator=...)` takes one. Nothing is cut off: normal means
# with tails.
#
# **A small example.** With $L = 12$, `c_proj.weight` has standard deviation $0.02/\sqrt{24} = 0.00408$.
# `hint("01.init")` gives three hints.


# %% 01.init tags=["answer", "01.init"]
def init(shapes: dict[str, list[int]], n_layer: int, seed: int) -> dict[str, Tensor]:
    """The first weights: name -> float32 tensor; lm_head.weight is wte.weight."""
    # BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        if name.endswith("bias"):
            weights[name] = torch.zeros(shape)
        elif "ln_" in name:
            weights[name] = torch.ones(shape)
        else:
            ends_a_branch = name.endswith("c_proj.weight")
            std = 0.02 / math.sqrt(2 * n_layer) if ends_a_branch else 0.02
            weights[name] = torch.randn(shape, generator=generator) * std
    weights["lm_head.weight"] = weights["wte.weight"]
    return weights
    # END SOLUTION


# %% tags=["check"]
check("01.init")

# %% [markdown] why init
# **Why it matters.** At the start a GPT-2 knows nothing and all tokens look about equally likely to it: its loss is
# close to $\ln V$. A first loss far above says that weights are too large somewhere. It is the cheapest test of a port.

# %% [markdown] statement of logits
# ## 01.logits: from tokens to the logits that are asked for
#
# Now the whole model. Each token's embedding and the embedding of its position are added; the sum passes through the
# blocks `h.0` to `h.{L-1}`, then through one more layer norm, `ln_f`. The logits of a position are the products of its
# $d$ channels with every row of the token embedding.
#
# Training asks for the logits of every position. Somebody who generates text asks for few: prompts of different lengths
# stand in one batch, filled up on the right, and each needs the logits at *its* last real token. So there is `at`.
#
# | | | |
# |---|---|---|
# | `tokens` | (B, T) | int64 |
# | `weights` | dict | as `init` returns it: `"wte.weight"`, `"wpe.weight"`, `"h.0.ln_1.weight"`, ..., `"ln_f.bias"` |
# | `n_layer`, `n_head` | int | $L$ and $H$ |
# | `start` | int | position of the first token: 0 in training; when text is generated with a cache, the length so far |
# | `at` | (B, n) or `None` | int64: in row $b$, which of the tokens of sequence $b$ are asked for, counted from 0 |
# | `block` | function | `block(x, params, n_head)`, as in 01.block, with everything else already inside |
# | result | (B, n, V), or (B, T, V) where `at` is `None` | in the dtype and on the device of the weights |
#
# `params` of layer $n$ are the tensors whose names begin with `h.n.`, without that beginning: `ln_1.weight` and so on.
# The check counts FLOPs: what nobody asked for costs no product that can be spared.
#
# **A small example.** No layers, $d = 2$, one token with embedding $(1, 2)$ and position $(0, 1)$: the sum $(1, 3)$ has
# mean 2 and variance 1, and is normed to $(-1, 1)$. With `ln_f.weight` 1 and `ln_f.bias` 0 its own logit is
# $-1 \cdot 1 + 1 \cdot 2 = 1$. With three sequences, `at = [[4], [2], [7]]` asks for one position of each.
# `hint("01.logits")` gives three hints.


# %% 01.logits tags=["answer", "01.logits"]
def logits(
    tokens: Tensor,
    weights: dict[str, Tensor],
    n_layer: int,
    n_head: int,
    start: int,
    at: Tensor | None,
    block,
) -> Tensor:
    """Tokens (B, T) to logits (B, n, V) at the asked positions, or (B, T, V).

    >>> weights = {"wte.weight": torch.tensor([[1.0, 2.0]])}
    >>> weights |= {"wpe.weight": torch.tensor([[0.0, 1.0]])}
    >>> weights |= {"ln_f.weight": torch.ones(2), "ln_f.bias": torch.zeros(2)}
    >>> weights |= {"lm_head.weight": weights["wte.weight"]}
    >>> token = torch.tensor([[0]])
    >>> round(logits(token, weights, 0, 1, 0, at=None, block=None).item(), 3)
    1.0
    """
    # BEGIN SOLUTION
    embedding = weights["wte.weight"]
    T, d = tokens.shape[1], embedding.shape[1]
    x = embedding[tokens] + weights["wpe.weight"][start : start + T]
    for layer in range(n_layer):
        prefix = f"h.{layer}."
        own = [name for name in weights if name.startswith(prefix)]
        params = {name.removeprefix(prefix): weights[name] for name in own}
        x = block(x, params, n_head)
    if at is not None:
        sequences = torch.arange(len(tokens))[:, None]
        x = x[sequences, at]
    x = F.layer_norm(x, (d,), weights["ln_f.weight"], weights["ln_f.bias"])
    return F.linear(x, embedding)
    # END SOLUTION


# %% tags=["check"]
check("01.logits")

# %% [markdown] why logits
# **Why it matters.** This is all there is: two look-ups, $L$ blocks, a norm and one large product. In GPT-2 124M that
# last product has 38.6 of the 123.5 million weights that multiply, so at short lengths nearly a third of the work is
# choosing among 50,257 tokens: spared for every token of a prompt but the last.
#
# **A good place to stop.** You have a model. What comes next counts it, trains it and lets it write.

# %% [markdown] statement of param_count
# ## 01.param_count: a modern block of the same size
#
# You want two changes that newer models made, and you may not make the block larger than GPT-2's.
#
# - **Grouped queries**: only `n_kv_head` heads have keys and values of their own; groups of query heads share them. The
#   linear layers of $k$ and $v$ then have $n_{kv} D$ outputs each, with $D = d / H$. Queries and the projection stay.
# - **SwiGLU**, where `gated`: the MLP has three linear layers. Two go from $d$ to `hidden` (one of them is the gate,
#   $\mathrm{silu}(x W_g) \odot x W_u$), one comes back. Without it there are two, as in GPT-2, where `hidden` is $4d$.
#
# Everything else is GPT-2: every linear layer inside a block has a bias, two norms with weight and bias stand in each
# block and one after the last, positions are learned, the output layer is the token embedding.
#
# **Decide** how wide the MLP may be: the largest `hidden` that is a multiple of `multiple`, such that the changed block
# has no more parameters than GPT-2's own, and 0 where no multiple fits. Then count the parameters of the whole changed
# model.
#
# | | |
# |---|---|
# | `vocab_size`, `n_positions`, `n_embd`, `n_layer`, `n_head` | int; $V$, longest sequence $P$, $d$, $L$, $H$ |
# | `n_kv_head`, `gated`, `multiple` | int, bool, int |
# | result | `{"hidden": int, "parameters": int}` |
#
# **A small example.** $V = 11$, $P = 5$, $d = 4$, $L = 1$, $H = 2$. GPT-2's block has linear layers with
# $4 \cdot 12 + 12$, $4 \cdot 4 + 4$, $4 \cdot 16 + 16$ and $16 \cdot 4 + 4$ parameters and two norms with 8 each: 244.
# With `n_kv_head` 1, a gate and `multiple` 1 the widest MLP has 11 columns, the block has 234 parameters, and the model
# 306. Unchanged, GPT-2 has **124,439,808**. `hint("01.param_count")` gives three hints.


# %% 01.param_count tags=["answer", "01.param_count"]
def param_count(
    vocab_size: int,
    n_positions: int,
    n_embd: int,
    n_layer: int,
    n_head: int,
    n_kv_head: int,
    gated: bool,
    multiple: int,
) -> dict[str, int]:
    """The widest MLP that keeps the block at GPT-2's size, and the model's parameters.

    >>> param_count(11, 5, 4, 1, 2, n_kv_head=1, gated=True, multiple=1)
    {'hidden': 11, 'parameters': 306}
    """
    # BEGIN SOLUTION
    d, kv = n_embd, n_kv_head * (n_embd // n_head)
    norms = 2 * 2 * d
    attention = 2 * (d * d + d) + 2 * (d * kv + kv)
    room = norms + 4 * (d * d + d) + (d * 4 * d + 4 * d) + (4 * d * d + d)
    # d + 1 for each layer that widens; d for the one that comes back, and its bias
    widening = 2 if gated else 1
    column = widening * (d + 1) + d
    hidden = (room - norms - attention - d) // column // multiple * multiple
    block = norms + attention + hidden * column + d
    ends = (vocab_size + n_positions) * d + 2 * d
    return {"hidden": hidden, "parameters": ends + n_layer * block}
    # END SOLUTION


# %% tags=["check"]
check("01.param_count")

# %% [markdown] why param_count
# **Why it matters.** The widths of Llama-like models look as if drawn by lot. They answer nearly your question, with
# all heads kept and without biases: the code of Llama takes $\tfrac{2}{3}$ of $4d$, the width of equal size, but rounds
# it *up* to a multiple of 256. For $d = 4096$ that is 11,008, where you would take 10,752 (source:
# [meta-llama/llama](https://github.com/meta-llama/llama), model.py, `FeedForward`). Unit 05 shows what a width that is
# no multiple of a tile costs.

# %% [markdown] statement of flops_per_token
# ## 01.flops_per_token: FLOPs, MFU, and where attention takes over
#
# Count the FLOPs of **training** on one token, by the convention of the lesson: matrix products only, a multiply-add is
# **two** FLOPs, the backward pass of a product costs twice its forward, and attention counts its full $T \times T$
# square. For one token the forward products are, in each layer, four linear layers, the scores $q\,k^\top$ and their
# product with $v$, and at the end the output layer, $d$ to $V$. Looking up an embedding, biases, norms and GELU do not
# count.
#
# Model FLOPs utilisation is what the device achieves of its peak:
#
# $$ \mathrm{MFU} = \frac{\text{FLOPs per token} \times \text{tokens per second}}{\text{peak FLOP/s}} $$
#
# **Decide** from which length on a faster attention kernel is worth more than faster linear layers: the smallest $T$ at
# which attention's two products cost more FLOPs than all products with weights together.
#
# | | |
# |---|---|
# | `n_layer`, `n_embd`, `vocab_size`, `seq_len` | int; $L$, $d$, $V$, $T$ |
# | `tokens_per_second`, `peak_flops` | float; tokens/s and FLOP/s |
# | result | `{"flops": int, "mfu": float, "attention_from": int}`; MFU as a fraction (0.4 for 40%) |
#
# **A small example.** $L = 1$, $d = 4$, $V = 1$, $T = 3$. Forward: linear layers $2 \cdot 12 \cdot 4^2 = 384$, scores
# and values $2 \cdot (2 \cdot 3 \cdot 4) = 48$, output $2 \cdot 4 = 8$: 440. Training costs three times that, 1320. At
# 1 token/s on a device of 2640 FLOP/s the MFU is 0.5. At $T = 24$ attention's products cost 384, still less than 392;
# at $T = 25$ they cost 400, so the answer is 25. `hint("01.flops_per_token")` gives three hints.


# %% 01.flops_per_token tags=["answer", "01.flops_per_token"]
def flops_per_token(
    n_layer: int,
    n_embd: int,
    vocab_size: int,
    seq_len: int,
    tokens_per_second: float,
    peak_flops: float,
) -> dict[str, float]:
    """FLOPs to train on one token, the MFU, and the length where attention takes over.

    >>> flops_per_token(1, 4, 1, 3, tokens_per_second=1.0, peak_flops=2640.0)
    {'flops': 1320, 'mfu': 0.5, 'attention_from': 25}
    """
    # BEGIN SOLUTION
    weights = n_layer * 2 * 12 * n_embd**2 + 2 * n_embd * vocab_size
    attention_per_position = n_layer * 2 * 2 * n_embd
    flops = 3 * (weights + attention_per_position * seq_len)
    return {
        "flops": flops,
        "mfu": flops * tokens_per_second / peak_flops,
        "attention_from": weights // attention_per_position + 1,
    }
    # END SOLUTION


# %% tags=["check"]
check("01.flops_per_token")

# %% [markdown] why flops_per_token
# **Why it matters.** MFU is the one number that compares runs across chips, sizes and vendors. GPT-2 takes
# 854,438,400 FLOPs a token at $T = 1024$, and attention leads only from 6,703 tokens on: at the length of its time it
# is the bytes of attention that hurt, not the FLOPs. Which peak you divide by matters as much as the count: the dense
# peak of the dtype in which the matrix products run. Many tables print the sparse peak, twice as large, as if it were
# dense.

# %% [markdown] statement of grad_accumulation
# ## 01.grad_accumulation: small steps that equal the large one
#
# A batch is too large for memory, so you run it in parts of `micro_batch` sequences and let the gradients add up. The
# result must equal the gradient of the whole batch. With the logits $z = x\,W^\top$ and the set $R$ of all positions
# of the **whole** batch whose target is real:
#
# $$ \mathcal{L} = \frac{1}{|R|} \sum_{r \in R} -\ln \mathrm{softmax}(z_r)_{t_r}, \qquad \text{wanted: }
# \mathcal{L} \text{ and } \frac{\partial \mathcal{L}}{\partial W} $$
#
# A target of $-100$ is padding: it has no loss and does not count. `F.cross_entropy` skips it by itself
# (`ignore_index=-100` is its default), and `reduction="sum"` returns the sum.
#
# | | shape | |
# |---|---|---|
# | `weight` | (V, d) | float32, without gradient: make a copy that has one |
# | `x` | (B, T, d) | float32 |
# | `targets` | (B, T) | int64, $-100$ for padding |
# | `micro_batch` | int | sequences in a part; the last part may be smaller |
# | result | `{"loss": number, "grad": (V, d)}` | float32 |
#
# The check also watches memory: no more than `micro_batch` sequences may have their logits there at once, and what one
# part left behind must be gone before the next ones pile up. Any way to a gradient is welcome: `backward()`,
# `torch.autograd.grad`, `torch.func.grad`, a formula.
#
# **A small example.** Part one holds three targets with losses 1, 2 and 3, part two a single one with loss 6. The mean
# is $12/4 = 3$. The mean of the parts' means is $(2 + 6)/2 = 4$: wrong. `hint("01.grad_accumulation")` gives three
# hints.


# %% 01.grad_accumulation tags=["answer", "01.grad_accumulation"]
def grad_accumulation(
    weight: Tensor,
    x: Tensor,
    targets: Tensor,
    micro_batch: int,
) -> dict[str, float | Tensor]:
    """Loss and gradient of the whole batch, in parts of `micro_batch` sequences.

    >>> weight, targets = torch.zeros(2, 1), torch.tensor([[0], [1], [-100]])
    >>> result = grad_accumulation(weight, torch.ones(3, 1, 1), targets, 2)
    >>> round(result["loss"], 4), result["grad"].flatten().tolist()  # ln 2
    (0.6931, [0.0, 0.0])
    """
    # BEGIN SOLUTION
    w = weight.detach().clone().requires_grad_()
    count = (targets != -100).sum()
    total = 0.0
    parts = zip(x.split(micro_batch), targets.split(micro_batch), strict=True)
    for part, wanted in parts:
        rows = (part @ w.T).flatten(0, 1)
        loss = F.cross_entropy(rows, wanted.flatten(), reduction="sum") / count
        loss.backward()
        total += loss.item()
    return {"loss": total, "grad": w.grad}
    # END SOLUTION


# %% tags=["check"]
check("01.grad_accumulation")

# %% [markdown] why grad_accumulation
# **Why it matters.** The wrong version trains, and its curve looks normal: sequences with few targets just weigh too
# much. Nothing but a comparison with the large batch shows it. The same division is waiting when ranks average their
# gradients in unit 11.

# %% [markdown] statement of lr_schedule
# ## 01.lr_schedule: warm-up and cosine
#
# Steps are counted from 0. During the first `warmup_steps` steps the rate rises in equal steps and **reaches** `max_lr`
# at the last of them; the first step already has a share of it. From step `warmup_steps` on it follows half a cosine:
# it starts at `max_lr`, is half way down in the middle of the rest, and would arrive at `min_lr` at step `total_steps`.
# From there on it stays at `min_lr`.
#
# `step`, `warmup_steps` and `total_steps` are ints, the rates floats, the result is a float. `warmup_steps` may be 0,
# and may equal `total_steps`: nothing may be divided by zero.
#
# **A small example.** $W = 4$, $N = 8$, $\eta_{max} = 1$, $\eta_{min} = 0.2$: the rates from step 0 to 8 are 0.25, 0.5,
# 0.75, 1, then 1, 0.883, 0.6, 0.317, and 0.2 from there on. `hint("01.lr_schedule")` gives three hints.


# %% 01.lr_schedule tags=["answer", "01.lr_schedule"]
def lr_schedule(
    step: int,
    warmup_steps: int,
    total_steps: int,
    max_lr: float,
    min_lr: float,
) -> float:
    """The learning rate of a step: linear warm-up, cosine decay, floor.

    >>> [round(lr_schedule(step, 4, 8, 1.0, 0.2), 3) for step in range(10)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 0.883, 0.6, 0.317, 0.2, 0.2]
    """
    # BEGIN SOLUTION
    if step < warmup_steps:
        return max_lr * (step + 1) / warmup_steps
    if step >= total_steps:
        return min_lr
    progress = (step - warmup_steps) / (total_steps - warmup_steps)
    return min_lr + (max_lr - min_lr) * 0.5 * (1 + math.cos(math.pi * progress))
    # END SOLUTION


# %% tags=["check"]
check("01.lr_schedule")

# %% [markdown] why lr_schedule
# **Why it matters.** A run that is compared with another one must share its schedule step for step. When two curves
# part, in unit 09, the schedule is the first thing to rule out: a warm-up that is off by one is enough to part them.

# %% [markdown] statement of train_step
# ## 01.train_step: repair a training step
#
# This step trains: the loss falls, and no error shows. It has **five faults**. The lesson's loop and its section 6 show
# three of them; the other two come from what neither meets.
#
# ```python
# def train_step(weights, optimizer, loss, parts, lr, clip):
#     optimizer.param_groups[0]["lr"] = lr
#     total = 0.0
#     for tokens, targets in parts:
#         part = loss(tokens, targets) / len(parts)
#         part.backward()
#         total += part.item()
#     norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), clip)
#     if math.isfinite(total):
#         optimizer.step()
#         optimizer.zero_grad()
#     return {"loss": total, "norm": norm.item()}
# ```
#
# It should do one optimizer step, the same that the whole batch would give in one piece, for every batch and every
# gradient: at the rate `lr`, with the norm of the whole gradient clipped to `clip`. The batch's loss is the mean over
# all its real targets. A gradient that is not finite leaves no trace, in this step or later. What is returned is the
# batch's loss and the norm of its gradient **before** it was clipped, finite or not.
#
# | | |
# |---|---|
# | `weights` | dict from name to tensor, as `init` returns it; all require gradients; the tied one has two names |
# | `optimizer` | made over these tensors, each once; its rate stands in every group of `optimizer.param_groups` |
# | `loss` | function: `loss(tokens, targets)` is the mean loss over the real targets of a part, a tensor |
# | `parts` | list of pairs (tokens, targets); a target of $-100$ is padding, each part has at least one real one |
# | `lr`, `clip` | float |
# | result | `{"loss": float, "norm": float}` |
#
# The check runs several steps one after another, and compares what you returned and the weights at the end.
#
# **A small example.** One part has three real targets, the loss 4 and the gradient $(4, 0)$; the other has a single
# real target, the loss 8 and the gradient $(0, 16)$. The batch has loss 5, gradient $(3, 4)$ and norm 5. With `clip` 1
# the optimizer gets $(0.6, 0.8)$. `hint("01.train_step")` gives three hints.


# %% 01.train_step tags=["answer", "01.train_step"]
def train_step(
    weights,
    optimizer,
    loss,
    parts,
    lr: float,
    clip: float,
) -> dict[str, float]:
    """One optimizer step on a batch in parts: its loss, and its gradient's norm."""
    # BEGIN SOLUTION
    optimizer.zero_grad()
    real = [(targets != -100).sum() for _, targets in parts]
    total = 0.0
    for (tokens, targets), count in zip(parts, real, strict=True):
        part = loss(tokens, targets) * count / sum(real)
        part.backward()
        total += part.item()
    each_once = [w for group in optimizer.param_groups for w in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(each_once, clip)
    for group in optimizer.param_groups:
        group["lr"] = lr
    if norm.isfinite():
        optimizer.step()
    return {"loss": total, "norm": norm.item()}
    # END SOLUTION


# %% tags=["check"]
check("01.train_step")

# %% [markdown] why train_step
# **Why it matters.** Each of the five trains. The test of the loss even looks careful: it never fires for a gradient
# that overflows below a finite loss, and where it does fire, it leaves the bad gradient for the next step. Such faults
# are found by comparing with a step that is known to be right, on batches made to be unpleasant, as this check does and
# as unit 03 does when it ports a whole run.

# %% [markdown] statement of kv_cache
# ## 01.kv_cache: decode without computing the past again
#
# The same attention as in 01.attention, one call for each piece of the sequence. A call gets $T_{new}$ new tokens and
# the keys and values of the $T_{past}$ tokens before them; it returns its outputs and the caches grown by the new
# tokens. New token $i$ stands at position $T_{past} + i$, so it may see keys $0$ to $T_{past} + i$.
#
# | | shape | |
# |---|---|---|
# | `x` | (B, T_new, d) | the new tokens only; T_new is 1 or more |
# | `k_cache`, `v_cache` | (B, H, T_past, D) | T_past is 0 in the first call |
# | `w_qkv`, `b_qkv`, `w_proj`, `b_proj`, `n_head` | as in 01.attention | |
# | result | `(y, k, v)` | (B, T_new, d) and two (B, H, T_past + T_new, D), dtype and device of `x` |
#
# The check feeds a sequence in pieces (a prompt, then single tokens, then several at once), hands back the caches that
# you returned, and compares all outputs with those of the whole sequence at once. It also counts FLOPs: queries, keys
# and values may be computed for new tokens only.
#
# **A small example.** $T_{past} = 2$, $T_{new} = 2$: row 0 of the scores may keep columns 0 to 2, row 1 columns 0 to 3.
#
# $$ \text{kept} = \begin{pmatrix} 1 & 1 & 1 & 0 \\ 1 & 1 & 1 & 1 \end{pmatrix} $$
#
# Here `F.scaled_dot_product_attention` is allowed, with a mask of your own or torch's `causal_lower_right`.
# `hint("01.kv_cache")` gives three hints.


# %% 01.kv_cache tags=["answer", "01.kv_cache"]
def kv_cache(
    x: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    w_qkv: Tensor,
    b_qkv: Tensor,
    w_proj: Tensor,
    b_proj: Tensor,
    n_head: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of new tokens over cache and themselves: (y, k, v), caches grown."""
    # BEGIN SOLUTION
    B, T_new, d = x.shape
    T_past = k_cache.shape[2]
    qkv = F.linear(x, w_qkv, b_qkv)
    by_head = (B, T_new, n_head, d // n_head)
    q, k, v = (part.view(by_head).transpose(1, 2) for part in qkv.split(d, dim=-1))
    k, v = torch.cat([k_cache, k], dim=2), torch.cat([v_cache, v], dim=2)
    kept = torch.ones(T_new, T_past + T_new, dtype=torch.bool, device=x.device)
    kept = kept.tril(T_past)
    scores = q @ k.transpose(-2, -1) / math.sqrt(d // n_head)
    weights = scores.masked_fill(~kept, -math.inf).softmax(dim=-1)
    y = (weights @ v).transpose(1, 2).reshape(B, T_new, d)
    return F.linear(y, w_proj, b_proj), k, v
    # END SOLUTION


# %% tags=["check"]
check("01.kv_cache")

# %% [markdown] why kv_cache
# **Why it matters.** Without a cache, token $T$ costs as much as a forward pass over $T$ tokens. With it, a step reads
# all weights and the whole cache to produce one token: about one FLOP for each byte in bfloat16, so it runs at the
# speed of the memory. Every trick with the cache from here on (GQA, MLA, FP8) makes it smaller. And `is_causal=True`
# aligns its mask with the first key, which is why it is wrong for a new piece on a filled cache.

# %% [markdown] statement of activation_memory
# ## 01.activation_memory: the largest batch that fits
#
# A device has `capacity` bytes. **Decide** for how many sequences of `seq_len` tokens there is
# room for what forward keeps, beside the state of the model. What backward makes for a moment comes on top, as the
# lesson counts.
#
# First, what one sequence keeps: the bytes of activations that the forward pass leaves behind for the backward pass (no
# dropout). The rule: an operation keeps what its backward needs, and a tensor that two operations need is kept once.
#
# | operation | keeps |
# |---|---|
# | linear layer | its input |
# | layer norm | its input (its output is the next layer's input) |
# | explicit attention: product of two activations ($q k^\top$, $p v$) | both operands |
# | explicit attention: softmax | its output |
# | fused attention, one kernel from $q, k, v$ to the heads | $q$, $k$, $v$ and its output, no probabilities |
# | GELU | its input |
# | addition, scaling | nothing |
# | cross-entropy | the log-probabilities, $V$ for each token, always in float32 |
#
# What you may leave out is the tolerance of the check: statistics of each norm and of fused attention, the masks (one
# serves the whole batch), and the token ids. Do not forget what follows the last block: a norm, the output layer, the
# loss.
#
# Then the rest of the memory: for each of the `parameters` stand a weight, a gradient and AdamW's two moments, all in
# float32, whatever the activations are.
#
# | | |
# |---|---|
# | `seq_len`, `n_layer`, `n_embd`, `n_head`, `vocab_size` | int; $T$, $L$, $d$, $H$, $V$ |
# | `bytes_per_value` | 4 for float32 activations, 2 for bfloat16 |
# | `fused` | bool: a fused attention kernel |
# | `parameters`, `capacity` | int: parameters of the model; bytes of the device |
# | result | `{"per_sequence": bytes, "largest_batch": int}`; the batch is 0 where nothing fits |
#
# **A small example.** $T = 4$, $L = 1$, $d = 8$, $H = 2$, $V = 10$, 4 bytes, explicit attention. The linear layers keep
# $(1 + 1 + 1 + 4)\,Td = 224$ numbers, and GELU, the norms and attention keep more. Everything together is 2592 bytes a
# sequence. A model of 100 parameters takes 1600 bytes, so 9,300 bytes hold 2 sequences beside it.
#
# For its small cases the check asks autograd for every tensor that it saves while the course's GPT-2 runs.
# `hint("01.activation_memory")` gives three hints.


# %% 01.activation_memory tags=["answer", "01.activation_memory"]
def activation_memory(
    seq_len: int,
    n_layer: int,
    n_embd: int,
    n_head: int,
    vocab_size: int,
    bytes_per_value: int,
    fused: bool,
    parameters: int,
    capacity: int,
) -> dict[str, int]:
    """Bytes that one sequence keeps for backward, and the largest batch in `capacity`.

    >>> activation_memory(4, 1, 8, 2, 10, 4, False, parameters=100, capacity=9_300)
    {'per_sequence': 2592, 'largest_batch': 2}
    """
    # BEGIN SOLUTION
    norms, qkv, merged_heads, around_gelu = 2 * 2, 3, 1, 2 * 4
    layer = (norms + qkv + merged_heads + around_gelu) * seq_len * n_embd
    if not fused:
        layer += n_head * seq_len**2
    after_the_blocks = 2 * seq_len * n_embd
    kept = bytes_per_value * (n_layer * layer + after_the_blocks)
    kept += 4 * seq_len * vocab_size
    room = capacity - 16 * parameters
    return {"per_sequence": kept, "largest_batch": max(0, room // kept)}
    # END SOLUTION


# %% tags=["check"]
check("01.activation_memory")

# %% [markdown] why activation_memory
# **Why it matters.** GPT-2 124M on a device of 80 GB, 1024 tokens, bfloat16: 95 sequences with explicit attention, 152
# with a fused kernel. The model itself takes 2 of the 80 GB. Weights cost the same at any batch size; activations
# decide. FlashAttention (unit 06) does not keep the probabilities, checkpointing computes the rest twice instead of
# keeping it, and both are trades between bytes and FLOPs that you can now put numbers to.

# %% [markdown] your own
# ## Your GPT-2
#
# Now your parts become a model. Nothing in the next three cells computes anything that you did not write: they only
# hand your functions to each other. Where one of them is not written yet, a cell says so; run it again afterwards.

# %% your parts assembled
from functools import partial

from gpu_utils.lesson import (
    GPT2,
    Batches,
    GPT2Config,
    TrainConfig,
    load_corpus,
    to_transformers,
    when_written,
)


class MyGPT2:
    """Your block with your attention and MLP, your logits, your first weights."""

    def __init__(self, config: GPT2Config, recompute: bool = False) -> None:
        self.config, self.recompute = config, recompute
        shapes = {name: list(w.shape) for name, w in GPT2(config).state_dict().items()}
        shapes["lm_head.weight"] = shapes["wte.weight"]
        self.weights = init(shapes, config.n_layer, seed=1337)
        for weight in self.weights.values():
            weight.requires_grad_()

    def __call__(self, tokens, start=0, at=None, attention=attention) -> Tensor:
        own = partial(block, attention=attention, mlp=mlp, recompute=self.recompute)
        L, H = self.config.n_layer, self.config.n_head
        return logits(tokens, self.weights, L, H, start, at, own)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())

    def optimizer(self) -> torch.optim.Optimizer:
        once = [w for name, w in self.weights.items() if name != "lm_head.weight"]
        matrices = {"params": [w for w in once if w.dim() > 1], "weight_decay": 0.1}
        the_rest = {"params": [w for w in once if w.dim() == 1], "weight_decay": 0.0}
        return torch.optim.AdamW([matrices, the_rest], betas=(0.9, 0.95))


# %% [markdown] is it GPT-2
# Is it GPT-2? The same weights go into the course's model, and from there into `transformers`' own
# `GPT2LMHeadModel`. All three must give the same logits, up to rounding.

# %% compare with the published architecture
with when_written():
    mine = MyGPT2(GPT2Config(500, n_positions=64, n_embd=96, n_layer=3, n_head=6))
    course = GPT2(mine.config)
    course.load_state_dict({name: mine.weights[name] for name in course.state_dict()})
    theirs = to_transformers(course)
    tokens = torch.randint(500, (2, 64))
    with torch.no_grad():
        found = mine(tokens)
        wanted = {"the course": course(tokens), "transformers": theirs(tokens).logits}
    for name, want in wanted.items():
        apart = (found - want).abs().max().item()
        same = "the same function" if apart < 1e-4 else "NOT the same function"
        print(f"against {name}: logits differ by at most {apart:.0e}, {same}")

# %% [markdown] train and write
# It is, so train it: 90 steps on the standard library's source, with your schedule and your step. Then it writes, with
# your cache: each new token passes through the blocks alone, and `remembering` hands every layer the keys and values
# that it had before. The loss to beat, printed above the text, is that of a model which only knows how often each token
# occurs.


# %% train it and let it write
def remembering():
    """Your attention over your cache: one a layer, which its weights tell apart."""
    caches = {}

    def attend(x, w_qkv, b_qkv, w_proj, b_proj, n_head):
        empty = x.new_zeros(len(x), n_head, 0, x.shape[-1] // n_head)
        k, v = caches.get(w_qkv.data_ptr(), (empty, empty))
        y, k, v = kv_cache(x, k, v, w_qkv, b_qkv, w_proj, b_proj, n_head)
        caches[w_qkv.data_ptr()] = k, v
        return y

    return attend


def write(model, tokenizer, prompt: str, n_new=60, temperature=0.7) -> str:
    tokens = new = torch.tensor([tokenizer.encode(prompt).ids])
    attend, start = remembering(), 0
    with torch.no_grad():
        for _ in range(n_new):
            at = torch.tensor([[new.shape[1] - 1]])
            last = model(new, start, at, attend)[:, 0]
            start += new.shape[1]
            new = torch.multinomial((last / temperature).softmax(-1), 1)
            tokens = torch.cat([tokens, new], dim=1)
    return tokenizer.decode(tokens[0].tolist())


with when_written():
    settings, steps = TrainConfig.preset("cpu"), 90
    corpus = load_corpus(settings.corpus)
    batches = Batches(corpus.train, settings, torch.device("cpu"), seed=1)
    model = MyGPT2(settings.model)
    adamw = model.optimizer()
    for step in range(steps):
        lr = lr_schedule(step, 25, steps, 3e-3, 3e-4)
        parts = [batches.draw()]
        now = train_step(model.weights, adamw, model.loss, parts, lr, clip=1.0)
        if step % 30 == 0 or step == steps - 1:
            print(f"step {step:3}: loss {now['loss']:.2f}, norm {now['norm']:.2f}")
    print(f"to beat: {corpus.unigram_entropy:.2f}, the unigram entropy")
    torch.manual_seed(0)
    for prompt in ("def __init__(self,", "for name in"):
        print("-" * 60, write(model, corpus.tokenizer, prompt), sep="\n")

# %% [markdown] end of the lab
# ## Done
#
# A GPT-2 in about a hundred lines, and all of them are yours. You know what it costs and which batch fits. The next
# cell shows where you stand. Unit 02 explains the machine that has to pay these costs, on both vendors.

# %% progress
progress()
