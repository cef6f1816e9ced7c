# %% [markdown] top
# # Lesson 01: GPT-2, trained and measured
#
# **Afterwards you can** say what each part of GPT-2 does and costs, count FLOPs and bytes before you run anything,
# train the model, and say which fraction of the hardware you used and where the rest went. The numbers you measure are
# saved: later units make parts of this model faster, smaller or portable, and unit 15 compares with today.
#
# **You need** lesson 00 and PyTorch as you know it. If you know GPT-2's parts by heart, run sections 1 and 2,
# answer only 01.growth and 01.agreement there, look at the figure of a block, and go on to section 3.
#
# **Time**: four sittings: the model (sections 1 and 2), what it costs (3), a run and its speed (4 and 5), and the rest
# (6 to 8). Text and code alone take 11, 7, 12 and 11 minutes at 200 words a minute, with the run on two idle CPU cores,
# where you train half a million parameters. With predictions, figures and the listing they take about 20, 15, 30 and
# 25. On a GPU of either vendor the same cells train the 124-million-parameter model.

# %% imports
import math
import time

import torch
import triton
import triton.language as tl
from torch.utils.flop_counter import FlopCounterMode

from gpu_utils import CHIPS, compile_for, explore, lesson, listing, predict, probe

device = lesson.default_device()
config = lesson.TrainConfig.preset(lesson.default_preset())
probe()

# %% [markdown] corpus
# ## 1. The text
#
# The corpus is the source of your Python's own standard library: real text, with nothing to download. (So the numbers
# differ a little between versions of Python.) It is split by file: validation measures files that the model has never
# seen.
#
# The tokenizer is a **byte-level BPE**. It starts with the 256 bytes as its alphabet, so that any text can be written.
# Then it joins the most frequent neighbouring pair inside a word, or inside a group of signs, into a new token, again
# and again, until the vocabulary is full.

# %% look at the corpus
corpus = lesson.load_corpus(config.corpus)
line = "    def __init__(self, name, value=None):"
print([corpus.tokenizer.decode([token]) for token in corpus.tokenizer.encode(line).ids])
tokens = torch.from_numpy(corpus.train.astype("int64"))
counts = torch.bincount(tokens).sort(descending=True).values
half = int((counts.cumsum(0) < counts.sum() / 2).sum() + 1)
lesson.table(
    {
        "files": corpus.files,
        "bytes to train on": corpus.train_bytes,
        "tokens to train on": len(corpus.train),
        "bytes a token": corpus.train_bytes / len(corpus.train),
        "vocabulary V": config.corpus.vocab_size,
        "ln V, nats per token": math.log(config.corpus.vocab_size),
        "frequent tokens that make half of the text": half,
    }
)

# %% [markdown] a line to beat
# ### Lines to beat
#
# The loss is cross-entropy in **nats per token**: $-\ln p$ of the token that really came next, averaged. Three models
# need no training, only counting:
#
# - one that finds all $V$ tokens equally likely has loss $\ln V$, printed above;
# - one that knows how often each token occurs, and looks at nothing else, has the **unigram entropy**
#   $-\sum_t p_t \ln p_t$ as its loss. A model well below it uses the context;
# - a **bigram table** has a row for each token: how often each other one follows it. Ten extra pairs, spread as
#   the frequencies are, are added to each row: a pair that never came is then unlikely, and not impossible. A model
#   well below it probably looks back further than one token.
#
# The last row of the table, call it $n$, bounds the unigram entropy from above: $n$ tokens make half of the text. A
# model that knows only this gives half of the probability to these $n$, evenly, and half to the others: its loss is
# $\ln 2 + \tfrac12 \ln n + \tfrac12 \ln (V - n)$. The true entropy is lower: by a few tenths for the vocabulary of a
# CPU's run (1,024), by more than 1 for a GPU's (50,257).

# %% the bound
rest = config.corpus.vocab_size - half
bound = math.log(2) + (math.log(half) + math.log(rest)) / 2
lesson.table({"n": half, "bound of the unigram entropy, nats per token": bound})

# %% predict the unigram entropy
guess = predict(
    "01.unigram",
    "What is the unigram entropy of this corpus?",
    entropy=lesson.number("unigram entropy", unit="nats per token", factor=1.03),
)

# %% the unigram entropy
bits = corpus.unigram_entropy / math.log(2)
of_text = bits * len(corpus.train) / corpus.train_bytes
guess.reveal(
    entropy=corpus.unigram_entropy,
    because="the bound takes the tokens of each half as equally frequent. They are "
    "not, and that takes off the rest.",
)
lesson.table(
    {
        "unigram entropy, bits a token": bits,
        "the same, bits per byte of text": of_text,
        "loss of the frequencies on validation files": corpus.unigram_loss,
        "loss of the bigram table on validation files": corpus.bigram_loss,
    }
)

# %% [markdown] bits per byte
# The entropy is that of the files to train on, so the loss of the frequencies on validation files differs a little.
#
# Nats per token cannot be compared between tokenizers: longer tokens are harder to guess, and there are fewer of
# them. **Bits per byte** can: nats per token, times tokens, divided by $\ln 2$ and by the bytes of the text.

# %% [markdown] attention
# ## 2. The model, part by part
#
# GPT-2 adds a learned vector for the token and one for its position, passes the sum through $L$ equal blocks, norms it
# and multiplies it with the token embedding again to get one logit per token of the vocabulary. That last matrix is
# **tied**: it is the embedding itself, not a copy.
#
# ### Attention
#
# With $d$ the width and $H$ heads of $D = d / H$ channels, one linear layer makes $q$, $k$ and $v$ side by side: first
# all of $q$, then all of $k$, then all of $v$. Each head compares every query with the keys up to its own position and
# averages the values:
#
# $$ \text{out} = \operatorname{softmax}\!\left(\frac{q k^\top}{\sqrt{D}} + \text{mask}\right) v $$
#
# A score sums $D$ products. If the numbers are independent, of mean 0 and variance 1, its standard deviation is
# $\sqrt D$; the division makes it 1. The mask is $-\infty$ above the diagonal. $e^{-\infty} = 0$, so a future token
# gets weight exactly zero. The diagonal itself stays: a softmax over a row that is all $-\infty$ is NaN.
#
# The next cell makes four tokens. All queries are zero, so all scores are equal. The values are 0, 10, 20 and 30.

# %% predict an average
guess = predict(
    "01.average",
    "What comes out of causal attention at the first position, and at the last?",
    first=lesson.number(),
    last=lesson.number(),
)

# %% attention by hand
q = torch.zeros(1, 1, 4, 1)  # (batch, heads, T, D)
k = torch.randn(1, 1, 4, 1)
v = torch.tensor([0.0, 10.0, 20.0, 30.0]).view(1, 1, 4, 1)
outputs = lesson.causal_attention(q, k, v, "explicit").flatten()
guess.reveal(
    first=outputs[0],
    last=outputs[3],
    because="equal scores are equal weights: position i averages the values 0 to i.",
)

# %% [markdown] two ways to attend
# There are two ways to compute it. The **explicit** one writes the $T \times T$ scores of every head to memory, reads
# them back for the softmax and again for the product with $v$. The **fused** one is a single kernel that works tile by
# tile and never writes them. You write the first in the lab (`01.attention`) and the second as a Triton kernel in unit
# 06.

# %% the same function
q, k, v = torch.randn(3, 2, 12, 256, 64, device=device).unbind()
explicit = lesson.causal_attention(q, k, v, "explicit")
fused = lesson.causal_attention(q, k, v, "sdpa")
scores = q.shape[0] * q.shape[1] * q.shape[2] ** 2 * q.element_size()
lesson.table(
    {
        "largest difference": (explicit - fused).abs().max(),
        "bytes of the result": fused.nbytes,
        "bytes of scores that only the explicit one writes": scores,
    }
)

# %% [markdown] block
# ### The block
#
# The **MLP** widens to $4d$, applies GELU and comes back. GPT-2 uses the tanh form:
#
# $$ \operatorname{GELU}(x) \approx
# \tfrac{x}{2}\left(1 + \tanh\!\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right) $$
#
# A block has two **branches**, attention and the MLP. Each adds its result to the **residual stream** $x$:
#
# $$ x \leftarrow x + \text{attention}(\text{norm}_1(x)), \qquad x \leftarrow x + \text{MLP}(\text{norm}_2(x)) $$
#
# This is called **pre-norm**: the norm stands at the entry of a branch, and the stream itself is normed only at the
# end, by `ln_f`. A layer norm takes one token's $d$ channels, subtracts their mean and divides by
# $\sqrt{\text{variance} + 10^{-5}}$; then it scales by a learned gain and adds a learned bias.
#
# The figure shows one block of the 124M model. FLOPs are those of products, with attention as the whole $T \times T$.
# "Values kept" is what forward leaves behind for backward, with explicit attention.

# %% figure of a block
lesson.BlockFigure(lesson.GPT2Config.preset("gpt2"), seq_len=1024)

# %% [markdown] the code
# ### All of it
#
# This is the model that you will train, under the names of the published one: the embeddings `wte` (tokens) and `wpe`
# (positions), the blocks `h`, and `ln_f` after the last. `how` chooses explicit or fused attention, the cache is for
# section 7. The functions `mlp` and `causal_attention` are the two formulas above. `split_heads` cuts the $3d$ channels
# of $q$, $k$ and $v$ into heads, where head $h$ takes channels $hD$ to $(h + 1)D - 1$ of each; `merge_heads` puts the
# heads' results side by side again. In the lab you write this from raw tensors, and change it.

# %% the model
lesson.code(
    lesson.SelfAttention,
    lesson.MLP,
    lesson.Block,
    lesson.GPT2.forward,
    lesson.GPT2.loss,
)

# %% [markdown] initial weights
# ### The first weights
#
# All matrices start as normal numbers with standard deviation 0.02, as in `transformers`, biases at 0, norms at 1. One
# detail matters: each of the $2L$ branches adds to the same stream. If every branch adds something independent of
# variance $s^2$, the sum has variance $2L s^2$. GPT-2 scales the output matrix of each branch (the two `c_proj`) by
# $1/\sqrt{2L}$: then the variance of the sum is $s^2$ at any depth.
#
# The next cell measures what all branches together add, for $d = 128$, $H = 4$ and several depths, with that scaling
# and without.

# %% predict the growth
guess = predict(
    "01.growth",
    "Four times as many layers, 48 in place of 12: by which factor does the sum of all "
    "branches grow, as a standard deviation?",
    scaled=lesson.number("with the scaling", factor=1.2),
    unscaled=lesson.number("without", factor=1.2),
)


# %% the sum of all branches
@torch.no_grad()
def added(layers, scaled):
    """Standard deviation of what the branches of a new model add to the stream."""
    torch.manual_seed(0)
    model = lesson.GPT2(lesson.GPT2Config(256, 64, 128, layers, n_head=4))
    if not scaled:
        for name, weight in model.named_parameters():
            if name.endswith("c_proj.weight"):
                weight *= math.sqrt(2 * layers)
    x = start = model.wte(torch.randint(256, (8, 64))) + model.wpe.weight
    of_attention = []
    for block in model.h:
        of_attention.append(block.attn(block.ln_1(x)).std().item())
        x = block(x)
    return (x - start).std().item(), of_attention[0], of_attention[-1]


sums = {}
for layers in (4, 12, 48):
    scaled, unscaled = added(layers, True), added(layers, False)
    sums[f"L = {layers}"] = {"scaled": scaled[0], "unscaled": unscaled[0]}
    sums[f"L = {layers}"]["unscaled, layer 1's attention"] = unscaled[1]
    sums[f"L = {layers}"]["the last layer's"] = unscaled[2]
guess.reveal(
    scaled=sums["L = 48"]["scaled"] / sums["L = 12"]["scaled"],
    unscaled=sums["L = 48"]["unscaled"] / sums["L = 12"]["unscaled"],
    because="scaled, the variance stays; unscaled it is four times as large, and its "
    "root twice. Here it is a little more, since attention adds more in late layers, "
    "the last column: in layer 1 it averages tokens that have nothing in common.",
)
lesson.table(sums, note="standard deviation of the sum of all branches")

# %% [markdown] the real thing
# ### Is it the real GPT-2?
#
# An implementation can be checked against a reference with the same weights. Below, `transformers`'
# `GPT2LMHeadModel` gets those of ours: full width, 12 heads, 50,257 tokens, two of the twelve layers to save your time.
# Its linear layers (`Conv1D`) hold matrices as (in, out), ours as (out, in) like `nn.Linear`: four kinds of matrices
# are transposed on the way. Biases and gains are made random first. Fresh ones are zeros and ones, and would hide a
# bias that is missing, or two norms that are swapped.
#
# Then we make three slips in the other model: the exact GELU for its tanh form (they differ by less than $5 \cdot
# 10^{-4}$), an epsilon of $10^{-6}$ for $10^{-5}$ in the norms of the blocks, and the norms of a block swapped. The
# first norm reads a token's vector plus a position's, both of standard deviation 0.02.

# %% predict the difference
orders = ("about 1e-3", "about 1e-6", "about 1e-9")
guess = predict(
    "01.agreement",
    "The right models differ by rounding in float32. How large is the largest of 3.2 "
    "million differences? And which of these slips moves the logits more?",
    difference=lesson.choice(*orders),
    slip=lesson.choice("the exact GELU", "an epsilon of 1e-6"),
)

# %% against transformers
ours = lesson.GPT2(lesson.GPT2Config(50257, 1024, n_embd=768, n_layer=2, n_head=12))
with torch.no_grad():
    for vector in (p for p in ours.parameters() if p.dim() == 1):
        vector += 0.1 * torch.randn_like(vector)
theirs = lesson.to_transformers(ours)
text = torch.randint(50257, (1, 64))


@torch.no_grad()
def apart(ours, theirs):
    return (ours(text) - theirs(text).logits).abs().max().item()


slips = {"the same model": apart(ours, theirs)}
for block in theirs.transformer.h:
    block.mlp.act = torch.nn.GELU()
slips["the exact GELU"] = apart(ours, theirs)
for block in theirs.transformer.h:
    block.mlp.act = torch.nn.GELU(approximate="tanh")
    block.ln_1.eps = block.ln_2.eps = 1e-6
slips["an epsilon of 1e-6"] = apart(ours, theirs)
for block in theirs.transformer.h:
    block.ln_1.eps = block.ln_2.eps = 1e-5
    block.ln_1, block.ln_2 = block.ln_2, block.ln_1
guess.reveal(
    difference=lesson.nearest(slips["the same model"], orders),
    slip=max(list(slips)[1:], key=slips.get),
    because="rounding in float32 is up to 6e-8 of a number, and a logit near 1 has "
    "seen some. What the first norm reads has a variance of 2 x 0.02 x 0.02 = 0.0008. "
    "An epsilon of 1e-5 is an 80th of it: with less of it the normed vector is 0.6% "
    "longer. The GELUs differ by less.",
)
slips["norms swapped"] = apart(ours, theirs)
del ours, theirs
lesson.table(slips, note="largest difference of a logit")

# %% [markdown] published weights
# With a route to the model hub, or the weights in the cache of `transformers`, the published GPT-2 loads the same way
# (548 MB). Set the switch to try it.

# %% the published weights
LOAD_PUBLISHED_WEIGHTS = False

if LOAD_PUBLISHED_WEIGHTS:
    import transformers

    published = lesson.from_pretrained("gpt2").to(device)
    words = transformers.AutoTokenizer.from_pretrained("gpt2")
    prompt = words("A graphics processor is", return_tensors="pt").input_ids.to(device)
    out = lesson.generate(published, prompt, 40, temperature=0.8, top_k=40)
    print(words.decode(out[0]))

# %% [markdown] stop one
# ### Stop here
#
# You have the model, part by part, and a reference that it agrees with. Next you count what it costs, train it, and
# measure how much of the machine that used. After a restart: *Run > Run All Above Selected Cell*, some seconds.

# %% end of the first sitting
lesson.sitting("01", 1)

# %% [markdown] count
# ## 3. Count before you measure
#
# Two models are counted here: GPT-2 124M as published, and the one that this machine trains in section 4.

# %% the two models
big, mine = lesson.GPT2Config.preset("gpt2"), config.model
shapes = {
    name: {"L": c.n_layer, "d": c.n_embd, "H": c.n_head, "V": c.vocab_size, "T": T}
    for name, c, T in (
        ("GPT-2 124M", big, 1024),
        ("trained here", mine, config.seq_len),
    )
}
lesson.table(shapes, first="model", note=f"a batch here: {config.batch} sequences")

# %% [markdown] parameters
# ### Parameters
#
# Nothing has to be allocated to be counted: on the device `meta` tensors have shapes and no numbers. A block's matrices
# have $12 d^2$ entries: $3 d^2$ for $q$, $k$ and $v$, $d^2$ after attention, $8 d^2$ in the MLP.

# %% where the parameters are
with torch.device("meta"):
    on_meta = lesson.GPT2(big, attention="explicit")
held = {"token embedding, which is the output": on_meta.wte.weight.numel()}
held["positions"] = on_meta.wpe.weight.numel()
held["matrices of the blocks"] = sum(
    p.numel() for p in on_meta.h.parameters() if p.dim() == 2
)
held["biases and norms"] = sum(p.numel() for p in on_meta.parameters() if p.dim() == 1)
held["all"] = sum(p.numel() for p in on_meta.parameters())
lesson.table(held, note="GPT-2 124M")

# %% [markdown] flops
# ### FLOPs
#
# A multiplication and an addition are two FLOPs. A matrix with $n$ entries multiplies a vector with $2n$ of them.
# Backward does twice as much as forward: it needs the gradient of the product's input and that of the matrix. The
# matrices of the blocks multiply, and the token embedding does, as the output; looking a token up is free.
#
# Attention multiplies activations with each other: for one token and layer, $q k^\top$ takes $T$ products of $d$
# numbers in all heads together, and the sum over $v$ as much again. This counts the whole $T \times T$ square, also
# where a kernel skips the masked half. That is the usual convention
# ([PaLM](https://arxiv.org/abs/2204.02311), appendix B), and it makes the count a property of the model and not of the
# kernel.

# %% predict the share of attention
guess = predict(
    "01.share",
    "Which share of GPT-2's FLOPs is attention's two products, at T = 1024?",
    share=lesson.number("share, 0 to 1", factor=1.25),
)


# %% torch counts
def counted_flops(shape, T):
    """FLOPs per token of forward and backward at length T, for each operator."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        text = torch.zeros(1, T, dtype=torch.int64)
        lesson.GPT2(shape, attention="explicit").loss(text, text).backward()
    return {op: n // T for op, n in counter.get_flop_counts()["Global"].items()}


counted = counted_flops(big, 1024)
flops_per_token = sum(counted.values())
of_attention = counted[torch.ops.aten.bmm]
guess.reveal(
    share=of_attention / flops_per_token,
    because="forward, the weights take 2 x 123.5 million = 247 MFLOP, the two products "
    "12 x 2 x 2 T d = 38: 38 of 285. The share grows with T; the lab asks how far.",
)
lesson.table(
    {
        "FLOPs to train on one token": flops_per_token,
        "of them attention's two products": of_attention,
    }
)

# %% [markdown] claim and fact
# > **Claim and fact: "a 671-billion-parameter model"**
# >
# > - **The claim.** Each token costs what all parameters of DeepSeek-V3 cost.
# > - **What the report says.** 671B parameters in all, 37B *active* for a token: of 256 routed experts in a layer, a
# >   token visits 8, and one shared expert. (source: [DeepSeek-V3 report](https://arxiv.org/abs/2412.19437))
# > - FLOPs follow the parameters that multiply *this* token: 2 a parameter forward and 4 backward, so about $6 \cdot
# >   37 \cdot 10^9 = 222$ GFLOP per token for training, plus attention, and not 4,026. Memory follows all 671B.
# >   (source: the two counts of the report, times 6)
# > - A later unit builds the experts, another one spreads them over several GPUs.

# %% [markdown] bytes
# ### Bytes
#
# Training keeps four things in memory. Three depend on the model only: weights, gradients, and AdamW's two moments. In
# float32 that is $4 + 4 + 8 = 16$ bytes a parameter, 1.99 GB for GPT-2. What remains depends on the batch:
# **activations**, everything that forward must keep for backward. The rule: an operation keeps what its own backward
# needs. A product needs its operands, a softmax its result, a GELU its input; a sum needs nothing.
#
# Look at the figure of the block again. Its column "values kept" has two kinds of values: **channels**, multiples of
# $d$ for each token however long the sequence is, and with explicit attention **probabilities**, for each token one for
# every key and head. The row of attention holds both: $3d$ and $HT$. A number takes 4 bytes here; explicit attention
# also keeps its mask, for each token one byte for every key, once for all heads. The next cell measures all this for
# one layer of $d = 128$ and $H = 4$: autograd hands every tensor that it keeps to a hook, and we add up their bytes. It
# changes one thing, the length.

# %% predict the tie
guess = predict(
    "01.tie",
    "From which T on do the probabilities of that layer weigh more than its channels?",
    length=lesson.number("T", factor=1.1),
)


# %% what autograd keeps
def kept(T, how):
    layer = lesson.Block(lesson.GPT2Config(64, 1024, 128, 1, 4), 0, how)
    x = torch.zeros(1, T, 128, requires_grad=True)
    return lesson.saved_bytes(layer, lambda: layer(x))


rows = {}
for T in (128, 256, 512, 1024):
    rows[T] = {"channels": kept(T, "sdpa"), "probabilities": kept(T, "explicit")}
    rows[T]["probabilities"] -= rows[T]["channels"]
    rows[T]["ratio"] = rows[T]["probabilities"] / rows[T]["channels"]
guess.reveal(
    length=1024 / rows[1024]["ratio"],
    because="for one token the column adds up to 16 d channels and H T probabilities: "
    "they tie at T = 16 d / H = 512. The mask, T bytes a token, moves that to 482.",
)
lesson.table(rows, first="T", note="bytes kept by one layer, measured")

# %% [markdown] a tie
# Each norm also keeps two numbers of a token, and the fused kernel one for each head: next to nothing.
#
# For GPT-2 124M, $16 \cdot 768 / 12 = 1024$: at its own length the two parts tie, $16 B T d = B H T^2$. For shorter
# texts the channels weigh more, for longer ones the probabilities: at 4,096 tokens they are four fifths. So a fused
# kernel, which never keeps them, halves what a block of GPT-2 keeps, and saves more for longer texts. In the lab you
# decide for which batch what is kept fits into 80 GB.

# %% [markdown] what it means on two chips
# ### What the counts say about two chips
#
# Nothing has been trained yet, and the counts already bound what hardware can do. A chip's **peak** bounds tokens per
# second: peak FLOP/s over FLOPs per token. Its **bandwidth** bounds the optimizer step, which does almost no
# arithmetic: it reads weights, gradients and two moments and writes weights and moments, seven numbers of 4 bytes a
# parameter.

# %% the bounds on both vendors
bounds = {}
for name in ("H100", "MI300X"):
    chip = CHIPS[name]
    seconds = 7 * 4 * held["all"] / (chip.bandwidth * 1e12)
    bounds[chip.name] = {
        "bf16 peak": chip.peak_figure("bf16"),
        "tokens/s at the peak": chip.peak("bf16") * 1e12 / flops_per_token,
        "bandwidth": chip.bandwidth_tb,
        "optimizer step at least, us": seconds * 1e6,
    }
lesson.table(bounds, across=True, note="GPT-2 124M at T = 1024.")

# %% [markdown] bounds are not speeds
# These are bounds from data sheets, not measurements. A kernel that skips the masked half of attention saves at most
# 7% of what is counted. Next you measure how much of a bound a program reaches.
#
# ### Long texts
#
# GPT-2 124M reads 8 sequences of 16,384 tokens. Take 2 bytes a value, as if all activations were bfloat16; autocast
# (section 4) keeps some in float32, so this is a lower bound. By $16 d$ channels and $H T$ probabilities for each token
# and layer, the channels are 36 GiB (1 GiB is $2^{30}$ bytes) and the probabilities 576. No chip of this course holds
# that. Fused attention drops the probabilities.
#
# One part is kept once, not in each layer: for each token the loss keeps its $V = 50{,}257$ **log-probabilities**, in
# float32. And backward begins there: it makes the gradient of the log-probabilities, and from it that of the logits.
# Each has the same size, and at that moment all three are alive.
# The state is counted with its gradients, most of which come during backward.

# %% predict long texts
parts_of_memory = (
    "the state: weights, gradients, moments",
    "the channels of all layers",
    "the three tensors of the loss together",
)
guess = predict(
    "01.long",
    "With fused attention: which part is the largest when backward begins?",
    largest=lesson.choice(*parts_of_memory, label="largest part"),
    loss=lesson.number("the three of the loss", unit="GiB", factor=1.1),
)

# %% long texts
tokens = 8 * 16384
sizes = (
    16 * held["all"] / 2**30,
    tokens * big.n_layer * 16 * big.n_embd * 2 / 2**30,
    3 * tokens * big.vocab_size * 4 / 2**30,
)
guess.reveal(
    largest=parts_of_memory[sizes.index(max(sizes))],
    loss=sizes[2],
    because="131,072 tokens x 50,257 numbers x 4 bytes are 24.5 GiB, three times. It "
    "takes 24 such layers to keep as much in channels, and GPT-2 has 12.",
)
lesson.table(dict(zip(parts_of_memory, sizes, strict=True)), first="GiB")

# %% [markdown] the explorer of costs
# Set 16,384 tokens below and tick fused attention. Each part of the memory is a bar, the dashed line is what the chip
# has. What would fit while forward runs does not fit when backward begins. A loss computed in pieces of the tokens
# never holds all three for all tokens.
#
# The explorer counts a little more than the cell above: learned positions for 16,384 tokens make the model larger, and
# the last norm and the output keep something too.

# %% play with the costs
explore("costs")

# %% [markdown] stop two
# ### Stop here
#
# You know what the model costs before it has run: parameters, FLOPs, bytes, and the bounds of two chips. Next you train
# it. After a restart: *Run > Run All Above Selected Cell*, some seconds.

# %% sitting two
lesson.sitting("01", 2)

# %% [markdown] train
# ## 4. Train
#
# This is the loop. `accumulated_step` runs forward and backward on one or more batches and leaves the gradient in
# `.grad`; section 6 is about it.

# %% the training loop
lesson.code(
    lesson.training_steps,
    lesson.accumulated_step,
    lesson.batch_loss,
    lesson.parameter_groups,
)

# %% [markdown] four details
# Look closer at four details of it.
#
# ### The learning rate
#
# AdamW divides by the root of a running average of squared gradients. In the first steps it has seen few of them, and
# the average is noisy ([On the Variance of the Adaptive Learning Rate](https://arxiv.org/abs/1908.03265)). So the rate
# starts low and rises linearly. Then it falls along half a cosine, to a tenth of the largest: slowly at first, slowly
# at the end.

# %% the schedule
rates = [config.learning_rate(step) for step in range(config.steps)]
lesson.curves({"rate": rates}, "learning rate")
lesson.table(
    {
        "steps": config.steps,
        "of them warm-up": config.warmup,
        "largest rate": max(rates),
        "mean rate": sum(rates) / len(rates),
        "weight decay": config.weight_decay,
    }
)

# %% [markdown] decay
# ### Weight decay, in groups
#
# In each step AdamW multiplies a decaying weight by $1 - \text{rate} \cdot \text{decay}$, apart from the gradient: it
# pulls matrices towards 0. Biases and the gains of norms are in a group of their own, without decay: a gain of 1 has no
# reason to be small.

# %% predict the pull
guess = predict(
    "01.decay",
    "Over all steps of the table above, what would decay alone take from a weight?",
    percent=lesson.number("it shrinks by", unit="percent", factor=1.3),
)

# %% the pull of decay alone
left = math.prod(1 - rate * config.weight_decay for rate in rates)
guess.reveal(
    percent=100 * (1 - left),
    because="steps x mean rate x decay, nearly. Over a thousand times as many steps of "
    "this mean rate, decay alone would leave next to nothing.",
)
untrained = lesson.GPT2(mine)
groups = lesson.parameter_groups(untrained, config.weight_decay)
lesson.table(
    [
        {
            "weight decay": group["weight_decay"],
            "tensors": len(group["params"]),
            "numbers": sum(p.numel() for p in group["params"]),
        }
        for group in groups
    ]
)

# %% [markdown] clipping
# ### Clipping the gradient
#
# Where the norm of the whole gradient is larger than 1, the gradient is scaled down to norm 1. Why would AdamW need it?
# It divides by the gradient's own size, so a gradient that is *always* ten times larger gives the same steps. What
# hurts is one that is not like the others. AdamW keeps two running averages: of the gradient, whose old value gets
# weight 0.9, and of its square, 0.95. A step is the first over the root of the second. (Both start at 0; AdamW corrects
# for that, so the very first step has size 1 already.)
#
# The next cell gives one weight the gradient 1 in every step, so each step has size 1 (times the rate); only in step 20
# the gradient is 50.

# %% predict an outlier
counts_of_steps = ("about 10", "about 40", "about 120")
guess = predict(
    "01.clip",
    "Without clipping, how large are steps 30 to 60? And how many steps are "
    "smaller than 0.9 after the outlier?",
    later=lesson.choice("larger than 1", "about 1", "smaller than 1"),
    steps=lesson.choice(*counts_of_steps, label="steps below 0.9"),
)


# %% one gradient that is not like the others
def step_sizes(clip):
    weight = torch.zeros(1, requires_grad=True)
    adamw = torch.optim.AdamW([weight], lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    sizes = []
    for step in range(160):
        before = weight.item()
        weight.grad = torch.tensor([50.0 if step == 20 else 1.0])
        torch.nn.utils.clip_grad_norm_([weight], clip)
        adamw.step()
        sizes.append(before - weight.item())
    return sizes


steps = {"clipped at 1": step_sizes(1.0), "not clipped": step_sizes(math.inf)}
lesson.curves(steps, "step / rate")
middle = sum(steps["not clipped"][30:60]) / 30
below = sum(size < 0.9 for size in steps["not clipped"][20:])
large = "larger than 1" if middle > 1.1 else "about 1"
guess.reveal(
    later="smaller than 1" if middle < 0.9 else large,
    steps=lesson.nearest(below, counts_of_steps),
    because="the average of squares forgets slowly: 2500 adds 0.05 of itself, 125, and "
    "a step is 0.9 again when 0.23 is left of it, as 1 / sqrt(1.23) is 0.9: "
    "log(0.23 / 125) / log(0.95) = 123 steps. The weight does not jump, it stalls. "
    "Clipping limits the outlier to 1.",
)

# %% [markdown] autocast
# ### What autocast does
#
# On a GPU with bfloat16 the matrix products run in it under `torch.autocast`; on a CPU this course trains in float32.
# Autocast is not `model.to(torch.bfloat16)`: it chooses a type for each operation, from lists. Products go to the
# narrow type, in which matrix units are faster. On a GPU, operations whose result needs the digits or the range go to
# float32: $e^x$, logarithms, large sums, layer norm, softmax, cross-entropy
# ([torch.amp](https://docs.pytorch.org/docs/stable/amp.html)); a CPU sends only cross-entropy of these there. An
# operation on neither list, like GELU, keeps the type that it gets.

# %% predict the types
guess = predict(
    "01.autocast",
    "Under autocast, which type has each of these?",
    weight=lesson.choice("float32", "bfloat16", label="the weight of c_attn"),
    output=lesson.choice("float32", "bfloat16", label="what c_attn returns"),
    gradient=lesson.choice("float32", "bfloat16", label="the gradient of its weight"),
)

# %% types under autocast
found = {}
layers = {
    "ln_1": untrained.h[0].ln_1,
    "c_attn": untrained.h[0].attn.c_attn,
    "MLP": untrained.h[0].mlp,
}
for name, layer in layers.items():
    layer.register_forward_hook(
        lambda _m, _in, out, name=name: found.update({name: out.dtype})
    )
text = torch.randint(mine.vocab_size, (4, mine.n_positions))
with torch.autocast("cpu", torch.bfloat16):
    loss = untrained.loss(text, text)
loss.backward()
weight = untrained.h[0].attn.c_attn.weight
guess.reveal(
    weight=str(weight.dtype).removeprefix("torch."),
    output=str(found["c_attn"]).removeprefix("torch."),
    gradient=str(weight.grad.dtype).removeprefix("torch."),
    because="weights, gradients and moments stay in float32; a copy in bfloat16 is "
    "made for each product. A step of 1e-4 would vanish in a bfloat16 weight of 1.",
)
with torch.autocast("cpu", torch.bfloat16):
    narrow = torch.zeros(1, 128, dtype=torch.bfloat16)
    normed = torch.nn.functional.layer_norm(narrow, (128,))
    entropy = torch.nn.functional.cross_entropy(narrow, torch.zeros(1).long())
found["of bfloat16 on a CPU, layer norm"] = normed.dtype
found["of bfloat16 on a CPU, cross-entropy"] = entropy.dtype
lesson.table(
    {name: str(found[name]) for name in found},
    first="returned by",
    note="ln_1 reads the stream, which is float32: so it returns float32, here too.",
)

# %% [markdown] predict training
# ### The run
#
# How far can the loss fall? A table learns a pair by counting it once. Gradient descent takes a small step at each
# sight of it, and starts with all tokens about equally likely.

# %% what the run will see
lesson.table(
    {
        "tokens in the run": config.steps * config.tokens_per_step,
        "tokens to train on": len(corpus.train),
        "loss of the frequencies": corpus.unigram_loss,
        "loss of the bigram table": corpus.bigram_loss,
    }
)

# %% predict the loss
losses = (
    "above that of the frequencies",
    "between the two",
    "below that of the bigram table",
)
guess = predict(
    "01.train",
    "Where does the loss on validation files end?",
    loss=lesson.choice(*losses, label="validation loss"),
)

# %% train the model
result = lesson.train(config)
record = result.record
final = record.final_val_loss
guess.reveal(
    loss=losses[(final < corpus.unigram_loss) + (final < corpus.bigram_loss)],
    because="it starts near ln V. A CPU's run sees a small part of what the table has "
    "counted, the first two rows above, and moves the weights a little at each sight.",
)
lesson.table(
    {
        "first training loss, nats per token": record.train_loss[0],
        "validation loss, nats per token": final,
        "nats below the frequencies": corpus.unigram_loss - final,
        "bits per byte": record.bits_per_byte,
        "steps with a loss above the frequencies": sum(
            loss >= corpus.unigram_loss for loss in record.train_loss
        ),
        "steps whose gradient was clipped": sum(
            n > config.clip for n in result.gradient_norms
        ),
        "seconds": record.seconds,
        "tokens/s": record.tokens_per_second,
    },
    note="tokens/s: without the first step and without validation.",
)

# %% the loss curve and the norms
lesson.curves(
    {"train, each step": record.train_loss, "validation": record.val_loss},
    "nats per token",
    levels={
        "frequencies": corpus.unigram_loss,
        "bigram table": corpus.bigram_loss,
        "ln V": math.log(config.corpus.vocab_size),
    },
)
lesson.curves(
    {"norm, each step": result.gradient_norms},
    "norm of the gradient",
    levels={"limit": config.clip},
    log=True,
)

# %% [markdown] the peak
# Two things were clipped: many steps with a norm a little above 1, and perhaps a **peak**, a norm many times those
# before it. Look for one in the lower curve; not every run has it. The cell with one weight says what a peak does when
# nothing limits it: if every weight's gradient grew 20-fold in one step, steps would be below 0.9 until 0.23 is left of
# $0.05 \cdot 20^2$, for $\ln(20 / 0.23) / \ln(1 / 0.95) = 87$ steps.

# %% predict a run without clipping
ends = ("lower by more than 0.1", "within 0.1", "higher by more than 0.1")
guess = predict(
    "01.unclipped",
    "The same run, the same batches, with no limit: where does its validation loss "
    "end, against the clipped run? (One more run.)",
    loss=lesson.choice(*ends, label="validation loss"),
)


# %% the run without clipping
def run(limit, seed=config.seed):
    other = lesson.TrainConfig(**vars(config) | {"clip": limit, "seed": seed})
    return lesson.train(other, progress=None)


runs = {"limit 1": result, "no limit": run(math.inf)}
lost = runs["no limit"].record.final_val_loss - final
guess.reveal(
    loss=ends[(lost > -0.1) + (lost > 0.1)],
    because="a peak stays in the average of squares, and the steps after it are small, "
    "as in the cell with one weight. What the other clipped steps add, one run does "
    "not show.",
)
lesson.curves(
    {name: each.record.train_loss for name, each in runs.items()},
    "train, nats per token",
)
lesson.curves(
    {name: each.gradient_norms for name, each in runs.items()},
    "norm of the gradient",
    log=True,
)
lesson.table(
    {
        name: {
            "validation loss": each.record.final_val_loss,
            "largest norm": max(each.gradient_norms),
        }
        for name, each in runs.items()
    }
)

# %% [markdown] samples
# This is one seed. Try `run(3.0).record.final_val_loss`, a limit that cuts peaks only, or `run(math.inf, seed=7)`
# beside `run(1.0, seed=7)`: another seed may lose much less. Clipping is an insurance, and you do not know before the
# run whether you need it.
#
# What does the model write? It was only asked, again and again, for the next token.

# %% the samples
for sample in record.samples:
    print(sample, "\n" + "-" * 60)

# %% [markdown] longer
# Better text takes a longer run. In one of 1,500 steps on a CPU the loss passed the bigram table's after about 550 and
# ended at 3.3. Set the switch to see what such a model writes; on two idle cores it takes some minutes at most.

# %% a longer run
TRAIN_LONGER = False

if TRAIN_LONGER:
    longer = lesson.TrainConfig(**vars(config) | {"steps": 1500})
    longer_record = lesson.train(longer).record
    print(
        longer_record.final_val_loss, *longer_record.samples, sep="\n" + "-" * 60 + "\n"
    )

# %% [markdown] measure
# ## 5. Measure: how much of the machine did you use?
#
# The measure is called **MFU**, model FLOPs utilisation:
#
# $$ \text{MFU} = \frac{\text{tokens/s} \times \text{FLOPs per token}}{\text{peak FLOP/s}} $$
#
# For a GPU the peak is that of its data sheet, without sparsity (many tables print the one with sparsity, twice as
# large); for a CPU it is that of the fastest product of 512 or 1,024 a side. What keeps a run below it? Products may be
# too small to reach it, and a part of each step is no product.
#
# First the products alone, each the fastest of 15 tries: a linear layer has one forward and two backward, as section 3
# counted, and attention has its own.

# %% the products alone
peak = lesson.device_peak(device, lesson.training_dtype(device))
of_peak = 1 / peak.flops_per_second if peak.flops_per_second else math.nan
alone = lesson.products_alone(mine, config.batch, config.seq_len, device)
flop = sum(one.flops for one in alone.values())
took = sum(one.seconds for one in alone.values())
lesson.table(
    {
        name: {
            "share of the peak": one.flops / one.seconds * of_peak,
            "of the FLOPs": one.flops / flop,
            "of the time": one.seconds / took,
        }
        for name, one in alone.items()
    },
    first="forward and backward",
    note=f"All together reach {flop / took * of_peak:.2f} of the peak, "
    f"{1e-9 / of_peak:,.0f} GFLOP/s; {peak.source}",
)

# %% [markdown] where the time goes
# Compare attention with the linear layers: its operator does the
# softmax as well, and its heads are narrow. On a CPU the peak itself is measured: a share slightly above 1 is noise.
# One far above says that the machine was busy when the peak was measured: run the cell again.
#
# Then the time: forward and backward of one batch are profiled by operator. The table is the median of five profiles:
# the operators that took longest, and any other that the formula counts.

# %% the middle of five profiles
text = torch.randint(mine.vocab_size, (config.batch, config.seq_len), device=device)
model = result.model


def forward_and_backward():
    model.zero_grad()  # as in a step: no gradient is there to add to
    lesson.batch_loss(model, text, text).backward()
    return model.wte.weight.grad


profile = lesson.product_share(forward_and_backward)
lesson.table(
    profile.rows,
    first="operator",
    mark=profile.products,
    note=f"Marked: what the formula counts, {profile.share:.0%} of the time.",
)

# %% [markdown] two factors
# `addmm` and `mm` are the products with weights; attention's two are inside the operators with `attention` in their
# names. On a GPU the others mostly wait for bytes. On a CPU GELU does not: its tanh takes several times as long as
# moving its bytes, which the next table shows. Unit 04 fuses such operators.
#
# Forward and backward should reach the share of the peak that the products reach alone, times the share of the time
# that the products have. For the whole run the formula at the head of the section gives the MFU. Its tokens/s stand
# under the run.

# %% what the formula needs
flops = record.flops_per_token
x = torch.randn(config.batch * config.seq_len, 4 * mine.n_embd, device=device)
gelu = lesson.fastest(lambda: torch.nn.functional.gelu(x, approximate="tanh"))
lesson.table(
    {
        "MFLOP of a token": flops / 1e6,
        "peak, GFLOP/s": 1e-9 / of_peak,
        "GELU of a layer, ms": gelu * 1e3,
        "adding 1 to as many numbers, ms": lesson.fastest(lambda: x + 1) * 1e3,
    }
)

# %% predict the MFU
guess = predict(
    "01.mfu",
    "Which share of the peak do forward and backward reach by the clock? What is the "
    "MFU of the run, by the formula?",
    both=lesson.number("forward and backward, 0 to 1", factor=1.3),
    mfu=lesson.number("MFU, 0 to 1", factor=1.1),
)

# %% the MFU
at_work = flop / lesson.fastest(forward_and_backward) * of_peak
guess.reveal(
    both=at_work if peak.flops_per_second else None,
    mfu=record.mfu,
    because="about the two shares multiplied: neither was timed inside an undisturbed "
    "step. The run does clipping, AdamW and the drawing of a batch as well.",
)
bars = {
    "peak": 1,
    "products alone": flop / took * of_peak,
    "forward and backward": at_work,
    "the run: MFU": record.mfu,
}
lesson.bars(bars, "share of the peak") if record.mfu else print(record.peak_source)

# %% [markdown] reading the MFU
# Each bar adds a loss to the one above. The second has what attention and the linear layers lose alone, the third what
# is no product, and that products run slower among other operators than alone; the fourth what comes once a step. A
# larger batch has fewer steps; the next section tries one.
#
# The run is one timing, the bars above it are the fastest of several. Where its bar is the longer one, or less than
# three quarters of that above, probably something else ran meanwhile or a laptop got hot: run the cell of the run
# again, then those of this section, before you save.

# %% [markdown] save
# ### Save the record
#
# Unit 15 compares with this file. It holds loss curve, configuration, versions, device, tokens/s, MFU and memory.

# %% save the record
path = lesson.save_record(record)
assert lesson.latest_record("01") == record
print(path.name)

# %% [markdown] stop three
# ### Stop here
#
# You have a trained model, the count of what it costs, and the share of the machine that it used. The last sitting
# changes the batch, runs one in parts, lets the model write quickly, and looks at the other vendor. After a restart:
# *Run > Run All Above Selected Cell*, about a minute. That trains and saves again, and the newest record counts: look
# at its bars once more.

# %% sitting three
lesson.sitting("01", 3)

# %% [markdown] change the batch
# ## 6. A larger batch
#
# ### Change one thing
#
# Suppose a step takes a fixed time $a$ (launching operators, the optimizer) and a time $b$ for each sequence: $a + b B$
# with a batch of $B$. Two measurements give both. Each runs six steps; the middle one of the last five counts.


# %% two batches
def ms_of_a_step(batch):
    speed = lesson.trial(corpus, config, batch=batch, accumulate=1)
    return 1e3 * batch * config.seq_len / speed


some, four_times = config.batch, 4 * config.batch
ms = {batch: ms_of_a_step(batch) for batch in (1, some)}
lesson.table({batch: {"ms a step": ms[batch]} for batch in ms}, first="batch")

# %% predict the effect of the batch
guess = predict(
    "01.batch",
    "How long does a step take with four times the larger of these batches?",
    larger=lesson.number("step", unit="ms", factor=1.35),
)

# %% four times the batch
ms[four_times] = ms_of_a_step(four_times)
guess.reveal(
    larger=ms[four_times],
    because="b is the difference of the two times over that of the two batches, a is "
    "what is left of the first; then a + 4 b B. Where the step takes longer than that, "
    "b is not quite constant.",
)
each = (ms[some] - ms[1]) / (some - 1)
once = ms[1] - each
lesson.table(
    {
        batch: {
            "ms a step": took,
            "a + b B": once + each * batch,
            "share of a": max(once, 0) / took,
            "MFU": batch * config.seq_len * flops / took * 1e3 * of_peak,
        }
        for batch, took in ms.items()
    },
    first="batch",
    note=f"a = {once:.1f} ms a step, b = {each:.1f} ms a sequence",
)

# %% [markdown] accumulation
# The column "share of a" bounds what a larger batch can still save; $a$ also holds the launches inside forward and
# backward, not only what comes once a step. On a machine that does other work too, run the cells again and look at the
# spread before you believe a difference.
#
# ### In the same memory
#
# Activations grow with the batch; gradients do not. **Gradient accumulation** runs several small batches, adds their
# gradients, and then does one optimizer step. The mean over a batch is the mean of the means of its equal parts, so
# each part's loss is divided by the number of parts. When the parts do not hold the same number of real tokens (because
# some are padding), that is no longer true: divide the *sum* of the losses by the tokens of the whole batch.
#
# The next cell runs a batch of 16 sequences of 64 random targets once whole, and once in 4 parts of 4 sequences, where
# each part's mean is divided by 4. It does so twice: with all 1,024 targets real, and with only 8 real ones in the last
# part, so 776 in all. The mean gradient of $n$ random targets is mostly noise, of size $1/\sqrt n$.

# %% predict accumulation
sizes_apart = (
    "equal to the last bit",
    "to rounding",
    "by some percent",
    "by more than half",
)
guess = predict(
    "01.accumulation",
    "How far is the gradient of the parts from that of the whole batch?",
    full=lesson.choice(*sizes_apart, label="all targets real"),
    padded=lesson.choice(*sizes_apart, label="8 real ones in the last part"),
)

# %% one batch against four
small = lesson.GPT2(lesson.GPT2Config.preset("cpu"), attention="explicit")
text = torch.randint(small.config.vocab_size, (16, 65))
full, padded = text[:, 1:], text[:, 1:].clone()
padded[12:] = -100
padded[12, :8] = text[12, 1:9]


def gradients(targets, parts):
    small.zero_grad()
    for part, wanted in zip(text.chunk(parts), targets.chunk(parts), strict=True):
        (small.loss(part[:, :-1], wanted) / parts).backward()
    return torch.cat([p.grad.flatten() for p in small.parameters()])


def error_of_parts(targets):
    whole = gradients(targets, 1)
    return ((whole - gradients(targets, 4)).norm() / whole.norm()).item()


def called(far):
    return sizes_apart[(far > 0) + (far > 1e-5) + (far > 0.5)]


def kept_by(batch):
    return lesson.saved_bytes(small, lambda: small.loss(batch[:, :-1], batch[:, 1:]))


far = {
    "all targets real": error_of_parts(full),
    "8 real ones in the last part": error_of_parts(padded),
}
guess.reveal(
    full=called(far["all targets real"]),
    padded=called(far["8 real ones in the last part"]),
    because="full parts give the same sums in another order. In the other batch 8 of "
    "776 targets get a quarter of the weight in place of a hundredth, and their mean "
    "is noise, about ten times as large as that of 776, the root of 97: 0.25 x 10.",
)
lesson.table(
    {f"relative difference, {name}": value for name, value in far.items()}
    | {"kept bytes, whole over a part": kept_by(text) / kept_by(text[:4])}
)

# %% [markdown] cache
# ## 7. Generate: the KV cache
#
# To write one token, the model needs the keys and values of all tokens before it. They do not change when a token is
# appended, because attention is causal. So they are kept: each step computes $q$, $k$, $v$ of the new token only, and
# attends to the **cache**. A new piece of several tokens works too; then query $i$ of the piece sees the whole past and
# the piece up to itself, so the mask is shifted by the length of the past.
#
# Without a cache, $n$ tokens cost $1 + 2 + \dots + n \approx n^2 / 2$ passes of a token through the model. With one,
# they cost $n$. For 120 tokens the count alone says 60 times faster. But time is not count: a pass launches the same
# operators for one token as for many. So measure a pass first; on a busy machine, run the cell again until more
# tokens take longer.

# %% a pass of one token and of many
model = result.model
many = min(120, mine.n_positions - 8)


def ms_of_a_pass(tokens):
    text = torch.zeros(1, tokens, dtype=torch.int64, device=device)
    with torch.no_grad():
        return 1e3 * lesson.fastest(lambda: model(text))


lesson.table(
    {T: {"ms a pass": ms_of_a_pass(T)} for T in (1, many // 2, many)}, first="tokens"
)

# %% predict the gain
guess = predict(
    "01.cache",
    "With a cache each new token is a pass over itself, without one a pass over all "
    "tokens so far. How many times faster is writing 120 tokens with a cache?",
    gain=lesson.number("times faster", factor=2),
)

# %% with and without a cache
prompt = torch.tensor([corpus.tokenizer.encode("def ").ids], device=device)
written, seconds = {}, {}
for use_cache in (True, False) * 3:  # the fastest of three counts
    start = time.perf_counter()
    written[use_cache] = lesson.generate(
        model, prompt, many, temperature=0, use_cache=use_cache
    ).tolist()
    took = time.perf_counter() - start
    seconds[use_cache] = min(took, seconds.get(use_cache, took))
guess.reveal(
    gain=seconds[False] / seconds[True],
    because="a pass of about 60 tokens on average against a pass of one. Both also "
    "pick the next token, and a cache must be appended to: that takes from the gain.",
)
lesson.table(
    {
        "the same tokens": written[True] == written[False],
        "ms a token, with a cache": seconds[True] * 1e3 / many,
        "ms a token, without": seconds[False] * 1e3 / many,
    }
)

# %% [markdown] why so little
# A step with a cache is a different kind of work: nearly every weight is read to produce **one** token. The arithmetic
# intensity of a decoding step is about one FLOP per byte in bfloat16 for a batch of one (two FLOPs and two bytes per
# weight). A chip needs its **ridge**, peak over bandwidth, to be busy with arithmetic:

# %% how far decoding is from the ridge
per_token = lesson.kv_cache_bytes(big, 1, 1, bytes_per_value=2)
ridges = {
    f"ridge of {CHIPS[n].name}, FLOP per byte": CHIPS[n].ridge("bf16")
    for n in ("H100", "MI300X")
}
lesson.table(ridges | {"GPT-2's cache in bfloat16, bytes per token": per_token})

# %% [markdown] claim about caches
# One FLOP per byte against hundreds: some hundreds of sequences must be decoded together to keep a chip's arithmetic
# busy with the weights.
#
# > **Claim and fact: "the bigger model needs the bigger cache"**
# >
# > - **The claim.** More parameters, more memory for each token of context.
# > - **What the paper says.** DeepSeek-V3 (671B) keeps 70 KB of cache per token, Qwen2.5-72B 327 KB and Llama-3.1-405B
# >   516 KB. (source: ["Insights into DeepSeek-V3"](https://arxiv.org/abs/2505.09343))
# > - **What you have just counted.** GPT-2 keeps all heads: $2Ld$ values, 36,864 bytes a token in bfloat16. With 124
# >   million parameters that is already half of what DeepSeek-V3 keeps, a model more than five thousand times larger.
# >   (measured: counted by the cell above)
# > - The cache follows the layers and what each head keeps. Grouped queries share keys between heads, as the lab and
# >   the next unit count; MLA (multi-head latent attention, DeepSeek's) keeps one compressed vector, which a later unit
# >   builds.

# %% [markdown] porting
# ## 8. What changes on the other vendor
#
# The code that trained your model names no vendor. Here is what stands behind it on each side:
#
# | Here | On NVIDIA | On AMD |
# |---|---|---|
# | device string | `"cuda"` | `"cuda"` too: PyTorch keeps the name; there is no `torch.hip` |
# | which one is it | `torch.version.cuda` is set | `torch.version.hip` is set, `torch.version.cuda` is `None` |
# | matrix products | cuBLAS | hipBLASLt, rocBLAS |
# | `F.scaled_dot_product_attention` | FlashAttention, cuDNN | AOTriton |
#
# Sources: PyTorch's [notes on HIP](https://docs.pytorch.org/docs/stable/notes/hip.html) for the device string, the
# versions, hipBLASLt and rocBLAS; [torch.backends](https://docs.pytorch.org/docs/stable/backends.html) for cuBLAS and
# AOTriton; [SDPBackend](https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.SDPBackend.html) for
# FlashAttention and cuDNN.
#
# AOTriton is AMD's library of such kernels, written in Triton and compiled ahead of time
# ([ROCm/aotriton](https://github.com/ROCm/aotriton)).
#
# The kernels under the operators are different programs and may sum in another order. So do not expect a loss curve on
# another chip to be bitwise yours. Unit 03 ports this script, unit 09 says how far apart two curves may be.
#

# %% both chips side by side
sides = {}
for name in ("H100", "MI300X"):
    chip, limits = CHIPS[name], CHIPS[name].limits
    dies = lesson.L2_OF_TARGET[chip.target].parts.value
    each = f"{dies:g} x {chip.l2_mb.value / dies:g} MB"
    sides[chip.name] = {
        "SMs (NVIDIA) or CUs (AMD)": chip.units,
        "lanes of a warp or wavefront": limits.lanes,
        "on-chip memory of a block, KiB": limits.shared_per_block / 1024,
        "L2 cache": each if dies > 1 else chip.l2_mb,
        "Infinity Cache, behind the L2": chip.mall_mb if chip.mall_mb.value else "none",
    }
origin = {name: CHIPS[name].limits.source for name in ("H100", "MI300X")}
lesson.table(
    sides,
    across=True,
    note=f"Lanes and memory of a block: {origin['H100']}; {origin['MI300X']}.",
)

# %% [markdown] one operator twice
# A wavefront of the MI300X has twice the lanes of a warp, and a block has less than a third of the memory: a tile that
# fits the H100 may not fit it. The MI300X is built of eight compute dies, each with its own L2 cache; the Infinity
# Cache behind them serves all dies. Unit 02 counts what that costs.
#
# ### One operator of your model, compiled for both
#
# GELU reads a value, does about ten FLOPs, and writes a value: 8 bytes in float32, so about one
# FLOP per byte, far below either ridge. Below it is written in Triton, with the identity
# $\tfrac12(1 + \tanh z) = \operatorname{sigmoid}(2z)$, and compiled for an H100 and an MI300X; nothing runs.
#
# One program of this kernel does 1024 elements. Triton gives it `num_warps=4`, unless told otherwise: 4 warps of 32
# lanes on the H100, 4 wavefronts of 64 lanes on the MI300X. On these chips a load instruction moves at most 128 bits
# for each lane: four floats.

# %% predict the loads
guess = predict(
    "01.loads",
    "How many 128-bit loads does a lane issue for its share of the 1024 elements?",
    nvidia=lesson.number("on NVIDIA"),
    amd=lesson.number("on AMD"),
)


# %% GELU for both vendors
@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    z = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + offsets, x * tl.sigmoid(2 * z), mask=offsets < n)


x = torch.linspace(-6, 6, 4096)
identity = x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
off = (identity - torch.nn.functional.gelu(x, approximate="tanh")).abs().max()
needs = {
    target: lesson.resources(
        compile_for(gelu_kernel, target, (x, x, x.numel()), BLOCK=1024)
    )
    for target in ("sm_90", "gfx942")
}
guess.reveal(
    nvidia=needs["sm_90"].widths["global load"].get(128, 0),
    amd=needs["gfx942"].widths["global load"].get(128, 0),
    because="1024 floats over 128 lanes are eight a lane, over 256 lanes four. The "
    "same num_warps means twice the lanes on Instinct.",
)
lesson.table(
    {
        target: {
            "lanes": kernel.num_warps * kernel.target.lanes,
            "loads of 128 bits": kernel.widths["global load"][128],
            "stores of 128 bits": kernel.widths["global store"][128],
        }
        for target, kernel in needs.items()
    },
    across=True,
    note=f"The identity is off by at most {off:.0e} between -6 and 6.",
)

# %% [markdown] loads explained
# So `num_warps` counts in a unit that depends on the vendor: the same number is another kernel. Unit 04 writes this
# kernel's backward too, runs both and counts the bytes.
#
# Point at a source line to see its instructions for both. The pane of `sm_90` shows PTX, which a further compiler turns
# into machine code; that of `gfx942` shows machine code itself, so their numbers of lines say nothing. Line 4 loads:
# twice `ld.global.v4.b32` for sm_90, once `buffer_load_dwordx4` for gfx942, as above. The mask: for sm_90 a predicate
# in front of the load; for gfx942 `v_cndmask` gives a lane that is masked off an offset outside of the buffer.

# %% listing of GELU
listing(gelu_kernel, "sm_90", "gfx942", args=(x, x, x.numel()), BLOCK=1024)

# %% [markdown] summary
# ## Summary
#
# - A model well below the unigram entropy uses its context; one well below a bigram table probably looks back further
#   than one token. Bits per byte compare across tokenizers.
# - GPT-2 has 124,439,808 parameters, and training takes 854 MFLOP a token at $T = 1024$, 13% of it in attention.
# - State costs 16 bytes a parameter. Activations follow the batch; probabilities tie with the channels at $T = 16 d /
#   H$.
# - Clipping limits what one odd gradient does to AdamW's averages. Decay acts on matrices only. Autocast keeps weights
#   in float32.
# - MFU is the share of the peak that the model itself needed. The rest goes into products below the peak, operators
#   that are no product, and what comes once a step.
# - Accumulation saves memory, the KV cache takes memory to save time. Both give the same result, to rounding.
#
# ## Read next
#
# - "Language Models are Unsupervised Multitask Learners" (2019), the GPT-2 paper:
#   https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf
# - "PaLM: Scaling Language Modeling with Pathways", appendix B, for MFU: https://arxiv.org/abs/2204.02311
# - "Reducing Activation Recomputation in Large Transformer Models", for activation memory:
#   https://arxiv.org/abs/2205.05198
# - "Decoupled Weight Decay Regularization", for AdamW: https://arxiv.org/abs/1711.05101
# - "On the Variance of the Adaptive Learning Rate and Beyond", for the warm-up: https://arxiv.org/abs/1908.03265
# - "DeepSeek-V3 Technical Report": https://arxiv.org/abs/2412.19437
#
# ## Self-check
#
# <details><summary>The batch doubles. What else does: weights, moments, activations, FLOPs per token?</summary>
#
# Only the activations. FLOPs per token stay.
# </details>
#
# <details><summary>Attention skips the masked half. Can MFU count more FLOPs than the chip executed?</summary>
#
# Yes: the convention counts the full square, the kernel computes half of it. MFU stays comparable between kernels,
# because the model's FLOPs did not change. The time did.
# </details>
#
# <details><summary>Why does the loss start near ln V, not near the unigram entropy?</summary>
#
# Small random weights give logits near zero, so all tokens are about equally likely.
# </details>
#
# <details><summary>A kernel with <code>num_warps=4</code> and 2,048 elements a program: how many elements has a lane on
# an H100, and on an MI300X?</summary>
#
# 2,048 / (4 x 32) = 16, and 2,048 / (4 x 64) = 8.
# </details>
#
# <details><summary>Batch of one, with a cache: does a chip with twice the FLOP/s, same bandwidth, help?</summary>
#
# Hardly. Decoding reads nearly every weight for one token, far below the ridge: bandwidth is the bound.
# </details>
#
# Now [lab 01](../labs/01_gpt2_baseline.ipynb): twelve exercises, and at the end a GPT-2 of your own that trains and
# writes.

# %% end of the last sitting
lesson.sitting("01", 4)
