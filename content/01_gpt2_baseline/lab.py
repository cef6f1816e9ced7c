# %% [markdown] top
# # Lab 01: a GPT-2 of your own, and what it costs
#
# You write the parts of GPT-2 from raw tensors: attention, the MLP, a block, the initial weights. Then you count what
# the model costs in parameters, FLOPs and bytes, and you write three pieces of a training and serving loop: gradient
# accumulation, the learning-rate schedule and the KV cache. Later units take each of these parts and make it fast.
#
# - **First**: lesson 01. Everything that is asked here is explained there.
# - **Time**: about two hours for ten exercises. Nothing here needs a GPU. Where there is one, the tensor exercises run
#   on it, NVIDIA or AMD.
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

from gpu_utils import check, hint, progress, solution
from gpu_utils.lesson import gpt2

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
# turns exactly these lines into a kernel. `hint("01.attention")` gives three hints.


# %% 01.attention tags=["answer", "01.attention"]
def attention(x: Tensor, w_qkv: Tensor, b_qkv: Tensor, w_proj: Tensor, b_proj: Tensor, n_head: int) -> Tensor:
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
    q, k, v = (part.view(B, T, n_head, d // n_head).transpose(1, 2) for part in qkv.split(d, dim=-1))
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
def mlp(x: Tensor, w_fc: Tensor, b_fc: Tensor, w_proj: Tensor, b_proj: Tensor) -> Tensor:
    """Linear to 4d, tanh GELU, linear back to d: x (B, T, d) -> (B, T, d).

    >>> ones = torch.ones(4, 1)
    >>> mlp(torch.ones(1, 1, 1), ones, torch.zeros(4), ones.T / 4, torch.zeros(1)).item()  # gelu(1)
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
# ## 01.block: the residual stream
#
# $$ x' = x + \mathrm{attention}(\mathrm{norm}_1(x)), \qquad y = x' + \mathrm{mlp}(\mathrm{norm}_2(x')) $$
#
# with $\mathrm{norm}(x) = \dfrac{x - \mu}{\sqrt{\sigma^2 + 10^{-5}}}\, w + b$; mean $\mu$ and variance $\sigma^2$ are
# those of one token's $d$ channels, and the variance divides by $d$.
#
# `x` is (B, T, d), float32 or bfloat16. `params` is a dict with the tensors of one block, under the names of GPT-2:
#
# | name | shape | | name | shape |
# |---|---|---|---|---|
# | `ln_1.weight`, `ln_1.bias` | (d,) | | `ln_2.weight`, `ln_2.bias` | (d,) |
# | `attn.c_attn.weight`, `.bias` | (3d, d), (3d,) | | `mlp.c_fc.weight`, `.bias` | (4d, d), (4d,) |
# | `attn.c_proj.weight`, `.bias` | (d, d), (d,) | | `mlp.c_proj.weight`, `.bias` | (d, 4d), (d,) |
#
# **Given**, so that this exercise does not depend on the two before it: `gpt2.layer_norm(x, weight, bias)`,
# `gpt2.attention(x, w_qkv, b_qkv, w_proj, b_proj, n_head)` and `gpt2.mlp(x, w_fc, b_fc, w_proj, b_proj)`.
#
# **A small example.** A token with channels (3, 5) has mean 4 and variance 1, so its norm is $(-1, 1)$ times $w$ plus
# $b$. If both branches give 0, the block returns its input unchanged. `hint("01.block")` gives three hints.


# %% 01.block tags=["answer", "01.block"]
def block(x: Tensor, params: dict[str, Tensor], n_head: int) -> Tensor:
    """One pre-norm transformer block: x (B, T, d) -> (B, T, d)."""

    def pair(name: str) -> tuple[Tensor, Tensor]:
        return params[f"{name}.weight"], params[f"{name}.bias"]

    # BEGIN SOLUTION
    h = gpt2.layer_norm(x, *pair("ln_1"))
    x = x + gpt2.attention(h, *pair("attn.c_attn"), *pair("attn.c_proj"), n_head)
    h = gpt2.layer_norm(x, *pair("ln_2"))
    return x + gpt2.mlp(h, *pair("mlp.c_fc"), *pair("mlp.c_proj"))
    # END SOLUTION


# %% tags=["check"]
check("01.block")

# %% [markdown] why block
# **Why it matters.** Nothing but additions touches the stream between the embedding and the last norm. That is what
# lets gradients reach the first layer, and what makes the next exercise necessary. On the machine, norms and additions
# are pure traffic: they move $2BTd$ numbers or more for a handful of FLOPs each. Unit 04 fuses them.

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
# `torch.Generator().manual_seed(seed)`; `torch.randn(shape, generator=...)` takes one.
#
# **A small example.** With $L = 12$, `c_proj.weight` has standard deviation $0.02/\sqrt{24} = 0.00408$.
# `hint("01.init")` gives three hints.


# %% 01.init tags=["answer", "01.init"]
def init(shapes: dict[str, list[int]], n_layer: int, seed: int) -> dict[str, Tensor]:
    """The initial weights of a GPT-2: name -> float32 tensor; lm_head.weight shares the memory of wte.weight."""
    # BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        if name.endswith("bias"):
            weights[name] = torch.zeros(shape)
        elif "ln_" in name:
            weights[name] = torch.ones(shape)
        else:
            std = 0.02 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 0.02
            weights[name] = torch.randn(shape, generator=generator) * std
    weights["lm_head.weight"] = weights["wte.weight"]
    return weights
    # END SOLUTION


# %% tags=["check"]
check("01.init")

# %% [markdown] why init
# **Why it matters.** At the start a GPT-2 knows nothing and all tokens look about equally likely to it: its loss is
# close to $\ln V$. A first loss far above says that weights are too large somewhere. It is the cheapest test of a port.

# %% [markdown] statement of param_count
# ## 01.param_count: parameters from the configuration
#
# Count every number that is trained, the tied output layer once. Every linear layer inside a block has a bias, the
# output layer has none; a layer norm has a weight and a bias; positions are learned.
#
# | | |
# |---|---|
# | `vocab_size`, `n_positions`, `n_embd`, `n_layer` | int; $V$, longest sequence $P$, $d$, $L$ |
# | result | int, number of parameters |
#
# **A small example.** $V = 11$, $P = 5$, $d = 4$, $L = 1$: embeddings $(11 + 5) \cdot 4 = 64$; in the block, linear
# layers with $4 \cdot 12 + 12$, $4 \cdot 4 + 4$, $4 \cdot 16 + 16$ and $16 \cdot 4 + 4$ parameters, and two norms with
# 8 each, 244 in all; the last norm 8. Together 316. GPT-2 has **124,439,808**. `hint("01.param_count")` gives three
# hints.


# %% 01.param_count tags=["answer", "01.param_count"]
def param_count(vocab_size: int, n_positions: int, n_embd: int, n_layer: int) -> int:
    """Number of parameters of a GPT-2 whose output layer is tied to the token embedding.

    >>> param_count(11, 5, 4, 1)
    316
    """
    # BEGIN SOLUTION
    d = n_embd
    norm = 2 * d
    attention = (d * 3 * d + 3 * d) + (d * d + d)
    mlp = (d * 4 * d + 4 * d) + (4 * d * d + d)
    layer = 2 * norm + attention + mlp
    return (vocab_size + n_positions) * d + n_layer * layer + norm
    # END SOLUTION


# %% tags=["check"]
check("01.param_count")

# %% [markdown] why param_count
# **Why it matters.** Training in float32 with AdamW keeps four numbers of 4 bytes for each parameter: weight, gradient
# and two moments. For GPT-2 that is 1.99 GB before a single activation. Of the 124 million, 38.6 million are the token
# embedding, which the forward pass only looks up at the bottom, and multiplies by at the top.

# %% [markdown] statement of flops_per_token
# ## 01.flops_per_token: FLOPs, and the share of the peak
#
# Count the FLOPs of **training** on one token: matrix products only, a multiply-add is **two** FLOPs, and the backward
# pass of a product costs twice its forward. For one token the forward products are, in each layer, four linear layers,
# the scores $q\,k^\top$ and their product with $v$ (with all $T$ positions: by convention the masked half counts, so
# that the yardstick does not depend on the kernel), and at the end the output layer, $d$ to $V$. Looking up an
# embedding, biases, norms and GELU do not count.
#
# Model FLOPs utilisation is what the device achieves of its peak:
#
# $$ \mathrm{MFU} = \frac{\text{FLOPs per token} \times \text{tokens per second}}{\text{peak FLOP/s}} $$
#
# | | |
# |---|---|
# | `n_layer`, `n_embd`, `vocab_size`, `seq_len` | int; $L$, $d$, $V$, $T$ |
# | `tokens_per_second`, `peak_flops` | float; tokens/s and FLOP/s |
# | result | `{"flops": int, "mfu": float}`, FLOPs per token and a fraction (0.4 for 40%) |
#
# **A small example.** $L = 1$, $d = 4$, $V = 1$, $T = 3$. Forward: linear layers $2 \cdot 12 \cdot 4^2 = 384$, scores
# and values $2 \cdot (2 \cdot 3 \cdot 4) = 48$, output $2 \cdot 4 = 8$: 440. Training costs three times that, 1320. At
# 1 token/s on a device of 2640 FLOP/s the MFU is 0.5. `hint("01.flops_per_token")` gives three hints.


# %% 01.flops_per_token tags=["answer", "01.flops_per_token"]
def flops_per_token(
    n_layer: int, n_embd: int, vocab_size: int, seq_len: int, tokens_per_second: float, peak_flops: float
) -> dict[str, float]:
    """FLOPs to train on one token, and the MFU at a given speed, as a fraction.

    >>> flops_per_token(1, 4, 1, 3, tokens_per_second=1.0, peak_flops=2640.0)
    {'flops': 1320, 'mfu': 0.5}
    """
    # BEGIN SOLUTION
    linear_layers = 2 * 12 * n_embd**2
    scores_and_values = 2 * (2 * seq_len * n_embd)
    output = 2 * n_embd * vocab_size
    flops = 3 * (n_layer * (linear_layers + scores_and_values) + output)
    return {"flops": flops, "mfu": flops * tokens_per_second / peak_flops}
    # END SOLUTION


# %% tags=["check"]
check("01.flops_per_token")

# %% [markdown] why flops_per_token
# **Why it matters.** MFU is the one number that compares runs across chips, sizes and vendors. GPT-2 takes
# 854,438,400 FLOPs a token at $T = 1024$. Which peak you divide by matters as much as the count: the dense peak of the
# dtype in which the matrix products run. Many tables print the sparse peak, twice as large, as if it were dense.

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
# The check also watches memory: no more than `micro_batch` sequences may have their logits there at once, and autograd
# may keep only one part for its backward.
#
# **A small example.** Part one holds three targets with losses 1, 2 and 3, part two a single one with loss 6. The mean
# is $12/4 = 3$. The mean of the parts' means is $(2 + 6)/2 = 4$: wrong. `hint("01.grad_accumulation")` gives three
# hints.


# %% 01.grad_accumulation tags=["answer", "01.grad_accumulation"]
def grad_accumulation(weight: Tensor, x: Tensor, targets: Tensor, micro_batch: int) -> dict[str, float | Tensor]:
    """Loss and gradient of the whole batch, computed in parts of `micro_batch` sequences.

    >>> result = grad_accumulation(torch.zeros(2, 1), torch.ones(3, 1, 1), torch.tensor([[0], [1], [-100]]), 2)
    >>> round(result["loss"], 4), result["grad"].flatten().tolist()  # ln 2, and the two targets pull alike
    (0.6931, [0.0, 0.0])
    """
    # BEGIN SOLUTION
    w = weight.detach().clone().requires_grad_()
    count = (targets != -100).sum()
    total = 0.0
    for part, wanted in zip(x.split(micro_batch), targets.split(micro_batch), strict=True):
        logits = part @ w.T
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / count
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
# For step $s$, counted from 0, with $W$ steps of warm-up, $N$ steps in all and rates $\eta_{max}$ and $\eta_{min}$:
#
# $$ \eta(s) = \begin{cases}
# \eta_{max}\,\dfrac{s + 1}{W} & s < W \\[2ex]
# \eta_{min} + \dfrac{\eta_{max} - \eta_{min}}{2} \left(1 + \cos \pi\,\dfrac{s - W}{N - W}\right) & W \le s < N \\[2ex]
# \eta_{min} & s \ge N
# \end{cases} $$
#
# `step`, `warmup_steps` and `total_steps` are ints, the rates floats, the result is a float. `warmup_steps` may be 0,
# and may equal `total_steps`: nothing may be divided by zero.
#
# **A small example.** $W = 4$, $N = 8$, $\eta_{max} = 1$, $\eta_{min} = 0.2$: the rates from step 0 to 8 are 0.25, 0.5,
# 0.75, 1, then 1, 0.883, 0.6, 0.317, and 0.2 from there on. `hint("01.lr_schedule")` gives three hints.


# %% 01.lr_schedule tags=["answer", "01.lr_schedule"]
def lr_schedule(step: int, warmup_steps: int, total_steps: int, max_lr: float, min_lr: float) -> float:
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
# Here `F.scaled_dot_product_attention` is allowed, with a mask of your own. `hint("01.kv_cache")` gives three hints.


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
    """Attention of new tokens over cache and new tokens: (y, k, v), where k and v are the grown caches."""
    # BEGIN SOLUTION
    B, T_new, d = x.shape
    T_past = k_cache.shape[2]
    qkv = F.linear(x, w_qkv, b_qkv)
    q, k, v = (part.view(B, T_new, n_head, d // n_head).transpose(1, 2) for part in qkv.split(d, dim=-1))
    k, v = torch.cat([k_cache, k], dim=2), torch.cat([v_cache, v], dim=2)
    kept = torch.ones(T_new, T_past + T_new, dtype=torch.bool, device=x.device).tril(T_past)
    scores = q @ k.transpose(-2, -1) / math.sqrt(d // n_head)
    weights = scores.masked_fill(~kept, -math.inf).softmax(dim=-1)
    y = (weights @ v).transpose(1, 2).reshape(B, T_new, d)
    return F.linear(y, w_proj, b_proj), k, v
    # END SOLUTION


# %% tags=["check"]
check("01.kv_cache")

# %% [markdown] why kv_cache
# **Why it matters.** Without a cache, token $T$ costs as much as a forward pass over $T$ tokens. With it, a step reads
# all weights and the whole cache to produce one token: a handful of FLOPs for each byte, so it runs at the speed of the
# memory. Every trick with the cache from here on (GQA, MLA, FP8) makes it smaller. And `is_causal=True` aligns its mask
# with the first key, which is why it is wrong for a new piece on a filled cache.

# %% [markdown] statement of activation_memory
# ## 01.activation_memory: the estimate, and the measurement
#
# Estimate how many bytes of activations the forward pass of GPT-2 (attention written out as in 01.attention, no
# dropout) keeps for the backward pass. The rule: an operation keeps what its backward needs, and a tensor that two
# operations need is kept once.
#
# | operation | keeps |
# |---|---|
# | linear layer | its input |
# | layer norm | its input (its output is the next layer's input) |
# | product of two activations ($q k^\top$, $p v$) | both operands |
# | softmax | its output |
# | GELU | its input |
# | addition, scaling | nothing |
# | cross-entropy | the log-probabilities, $V$ for each token, always in float32 |
#
# Weights are not counted. What you may leave out is the tolerance of the check: two statistics for each token and norm,
# the masks, and the token ids. Do not forget what follows the last block: a norm, the output layer, the loss.
#
# | | |
# |---|---|
# | `batch`, `seq_len`, `n_layer`, `n_embd`, `n_head`, `vocab_size` | int; $B$, $T$, $L$, $d$, $H$, $V$ |
# | `bytes_per_value` | 4 for a float32 model, 2 for bfloat16 |
# | result | number of bytes |
#
# **A small example.** $B = 1$, $T = 4$, $L = 1$, $d = 8$, $H = 2$, $V = 10$, 4 bytes. The linear layers keep
# $(1 + 1 + 1 + 4)\,BTd = 224$ numbers, and GELU, the norms and attention keep more. Everything together is 2592 bytes.
# The check asks autograd for every tensor that it saves while the course's GPT-2 runs, and compares.
# `hint("01.activation_memory")` gives three hints.


# %% 01.activation_memory tags=["answer", "01.activation_memory"]
def activation_memory(
    batch: int, seq_len: int, n_layer: int, n_embd: int, n_head: int, vocab_size: int, bytes_per_value: int
) -> int:
    """Bytes that the forward pass of GPT-2 keeps for its backward pass, weights apart.

    >>> activation_memory(1, 4, 1, 8, 2, 10, 4)
    2592
    """
    # BEGIN SOLUTION
    tokens = batch * seq_len
    norms, qkv, merged_heads, around_gelu = 2 * 2, 3, 1, 2 * 4
    layer = (norms + qkv + merged_heads + around_gelu) * tokens * n_embd
    layer += batch * n_head * seq_len**2
    after_the_blocks = 2 * tokens * n_embd
    return bytes_per_value * (n_layer * layer + after_the_blocks) + 4 * tokens * vocab_size
    # END SOLUTION


# %% tags=["check"]
check("01.activation_memory")

# %% [markdown] why activation_memory
# **Why it matters.** Weights cost the same at any batch size; activations grow with it, and decide what fits. The
# $T \times T$ probabilities of one sequence take 48 MiB a layer at 124M, 1024 tokens and float32. FlashAttention
# (unit 06) does not keep them, checkpointing computes the rest twice instead of keeping it, and both are trades between
# bytes and FLOPs that you can now put numbers to.

# %% [markdown] end of the lab
# ## Done
#
# You have a GPT-2 in about a hundred lines and know what it costs. The next cell shows where you stand.
# Unit 02 explains the machine that has to pay these costs, on both vendors.

# %% progress
progress()
