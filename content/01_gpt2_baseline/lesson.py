# %% [markdown] top
# # Lesson 01: GPT-2, trained and measured
#
# **Afterwards you can** write every part of GPT-2 from raw weights, count what it costs in parameters, FLOPs and bytes
# before you run it, train it, and say which fraction of the hardware you used. The numbers you measure are saved:
# every later unit makes a part of this model faster, smaller or portable, and unit 15 compares with today.
#
# **You need** lesson 00 and PyTorch as you know it.
#
# **Time**: 45 minutes of reading. The cells take about a minute on a two-core CPU, where you train half a
# million parameters. On a GPU of either vendor the same cells train the 124-million-parameter model.
#
# Some cells ask you to predict a number before you see it. Put your number in place of `None`. A wrong guess that you
# committed to teaches more than a right answer that you read.

# %% imports
import math
import os
import time

os.environ["KINETO_LOG_LEVEL"] = "99"  # the profiler's own log is not for this page; torch reads it when it is loaded

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.utils.flop_counter import FlopCounterMode

from gpu_utils import CHIPS, compile_for, explore, listing, probe
from gpu_utils.lesson import (
    GPT2,
    BlockFigure,
    GPT2Config,
    TrainConfig,
    activation_bytes,
    causal_attention,
    default_device,
    default_preset,
    flops_per_token,
    from_pretrained,
    generate,
    kv_cache_bytes,
    latest_record,
    load_corpus,
    load_transformers,
    matmul_params,
    param_count,
    resources,
    save_record,
    saved_bytes,
    state_bytes,
    train,
)

device = default_device()
config = TrainConfig.preset(default_preset())
print(probe())
print(f"\nthis lesson trains the preset {default_preset()!r} here")


def reveal(what, guess, truth):
    print(f"{what}: you said {guess}, it is {truth}")


# %% [markdown] corpus
# ## 1. The text
#
# The corpus is the source of Python's own standard library: real text, on every machine, with nothing to download.
# It is split by file, so that validation measures files the model has never seen.
#
# The tokenizer is a **byte-level BPE**. It starts with the 256 bytes as its alphabet, so that any text can be written.
# Then it joins the most frequent neighbouring pair into a new token, again and again, until the vocabulary is full.

# %% look at the corpus
corpus = load_corpus(config.corpus)
tokens = len(corpus.train)
print(f"{corpus.files} files; {corpus.train_bytes:,} bytes to train on, in {tokens:,} tokens")
print(f"{corpus.train_bytes / tokens:.2f} bytes a token")

line = "    def __init__(self, name, value=None):"
print([corpus.tokenizer.decode([token]) for token in corpus.tokenizer.encode(line).ids])

# %% [markdown] a line to beat
# ### A line to beat
#
# The loss is cross-entropy in **nats per token**: $-\ln p$ of the token that really came next, averaged. Two models
# need no training at all:
#
# - one that finds all $V$ tokens equally likely has loss $\ln V$;
# - one that knows how often each token occurs, and looks at nothing else, has the **unigram entropy**
#   $-\sum_t p_t \ln p_t$ as its loss.
#
# A model with a loss below the second line must have learned to use its context.
#
# **Predict**: how far below $\ln V$ is the unigram entropy?

# %% predict the unigram entropy
my_unigram_entropy = None  # nats per token

# %% the unigram entropy
print(f"uniform guess: ln {config.corpus.vocab_size} = {math.log(config.corpus.vocab_size):.2f} nats per token")
reveal("unigram entropy", my_unigram_entropy, f"{corpus.unigram_entropy:.2f} nats per token")
print(f"in bits per byte of text: {corpus.bits_per_byte(corpus.unigram_entropy):.2f}")

# %% [markdown] bits per byte
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
# With $d$ the width and $H$ heads of $D = d / H$ channels, one linear layer makes $q$, $k$ and $v$ side by side. Each
# head compares every query with the keys up to its own position and averages the values:
#
# $$ \text{out} = \operatorname{softmax}\!\left(\frac{q k^\top}{\sqrt{D}} + \text{mask}\right) v $$
#
# The mask is $-\infty$ above the diagonal. $e^{-\infty} = 0$, so a future token gets weight exactly zero.
#
# **Predict**: all queries are zero, so all scores are equal. The values are 0, 10, 20, 30. What comes out at the last
# position? And at the first?

# %% predict an average
my_first, my_last = None, None

# %% attention by hand
q = torch.zeros(1, 1, 4, 1)  # (batch, heads, T, D)
k = torch.randn(1, 1, 4, 1)
v = torch.tensor([0.0, 10.0, 20.0, 30.0]).view(1, 1, 4, 1)
first, *_, last = causal_attention(q, k, v, "explicit").flatten().tolist()
reveal("first", my_first, first)
reveal("last", my_last, last)

# %% [markdown] two ways to attend
# There are two ways to compute it. The **explicit** one writes the $T \times T$ scores of every head to memory, reads
# them back for the softmax and again for the product with $v$. The **fused** one is a single kernel that works tile by
# tile and never writes them. They are the same function, up to rounding. You write the first in the lab
# (`01.attention`) and the second as a Triton kernel in unit 06.

# %% the same function
q, k, v = torch.randn(3, 2, 12, 256, 64, device=device).unbind()
explicit, fused = causal_attention(q, k, v, "explicit"), causal_attention(q, k, v, "sdpa")
print(f"largest difference: {(explicit - fused).abs().max():.1e}")
scores = q.shape[0] * q.shape[1] * q.shape[2] ** 2 * q.element_size()
print(f"bytes of scores that only the explicit one writes: {scores:,}; bytes of its result: {fused.nbytes:,}")

# %% [markdown] block
# ### The block
#
# The MLP widens to $4d$, applies GELU and comes back. GPT-2 uses the tanh form:
#
# $$ \operatorname{GELU}(x) \approx
# \tfrac{x}{2}\left(1 + \tanh\!\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right) $$
#
# Both halves of a block are **pre-norm**: the norm stands at the entry of the branch, and the stream that passes by
# is never normed. First $x \leftarrow x + \text{attention}(\text{norm}(x))$, then
# $x \leftarrow x + \text{MLP}(\text{norm}(x))$. The gradient has an open road through all the sums.
#
# The figure shows one block of the 124M model. "Values kept" is what forward leaves behind for backward, with explicit
# attention.

# %% figure of a block
BlockFigure(GPT2Config.preset("gpt2"), seq_len=1024)

# %% [markdown] initial weights
# ### Initial weights
#
# All matrices start as normal numbers with standard deviation 0.02, biases at 0, norms at 1. One detail matters: each
# of the $2L$ branches adds to the same stream. If every branch adds something of variance $s^2$, the sum grows like
# $2L s^2$. GPT-2 scales the last matrix of each branch (the two `c_proj`) by $1/\sqrt{2L}$, and the sum stays near
# $s^2$ however deep the model is.
#
# **Predict**: 24 layers, without that scaling. By about what factor is what the branches add larger?

# %% predict the growth
my_growth = None


# %% how the stream grows
def added_by_the_branches(scaled):
    torch.manual_seed(0)
    model = GPT2(GPT2Config(vocab_size=256, n_positions=64, n_embd=128, n_layer=24, n_head=4))
    if not scaled:
        for name, weight in model.named_parameters():
            if name.endswith("c_proj.weight"):
                weight.data *= math.sqrt(2 * 24)
    text = torch.randint(256, (8, 64))
    with torch.no_grad():
        x = start = model.wte(text) + model.wpe.weight
        for block in model.h:
            x = block(x)
    return (x - start).std().item()


plain, scaled = added_by_the_branches(False), added_by_the_branches(True)
reveal("growth", my_growth, f"{plain / scaled:.1f} ({plain:.3f} against {scaled:.3f}); sqrt(48) is {math.sqrt(48):.1f}")

# %% [markdown] the real thing
# ### Is it the real GPT-2?
#
# An implementation is right when it agrees with the reference on the reference's own weights. Below, `transformers`
# makes a 124M model with random weights, and ours takes them over. Its linear layers hold matrices as (in, out), a
# heritage of TensorFlow; ours hold (out, in) like `nn.Linear`: four kinds of matrices are transposed on the way.
#
# **Predict**: the logits differ by rounding only. In float32, of what order of magnitude is the largest difference:
# `1e-3`, `1e-6` or `1e-9`?

# %% predict the difference
my_difference = None

# %% against transformers
import transformers

transformers.logging.set_verbosity_error()
torch.manual_seed(0)
theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
ours = load_transformers(theirs)
text = torch.randint(50257, (1, 64))
with torch.no_grad():
    difference = (ours(text) - theirs(text).logits).abs().max().item()
reveal("largest difference of 64 x 50257 logits", my_difference, f"{difference:.1e}")
print(f"parameters: {sum(p.numel() for p in ours.parameters()):,}")
del theirs, ours

# %% [markdown] published weights
# With a route to the model hub, or the weights in the cache of `transformers`, the published GPT-2 loads the same way
# (548 MB). Set the switch to try it.

# %% the published weights
LOAD_PUBLISHED_WEIGHTS = False

if LOAD_PUBLISHED_WEIGHTS:
    published = from_pretrained("gpt2").to(device)
    tokenizer = transformers.AutoTokenizer.from_pretrained("gpt2")
    prompt = tokenizer("A graphics processor is", return_tensors="pt").input_ids.to(device)
    print(tokenizer.decode(generate(published, prompt, 40, temperature=0.8, top_k=40)[0]))

# %% [markdown] count
# ## 3. Count before you measure
#
# ### Parameters
#
# Per block: $3d^2 + 3d$ and $d^2 + d$ in attention, $4d^2 + 4d$ and $4d^2 + d$ in the MLP, $4d$ in two norms. Together
# $12d^2 + 13d$. Around the blocks: $Vd$ for tokens, $n_{pos}\,d$ for positions, $2d$ for the last norm. The tied output
# costs nothing.
#
# ### FLOPs
#
# A matrix with $n$ entries does $2n$ FLOPs per token: a multiplication and an addition each. Backward does twice as
# much, because it needs the gradient of the input and that of the matrix. So training costs $6N$ per token, where $N$
# counts the parameters that multiply activations: $12Ld^2 + Vd$. Attention multiplies activations with each
# other: $q k^\top$ and the product with $v$ cost $4Td$ per token and layer, three times that with backward:
#
# $$ \text{FLOPs per token} = 6\,(12Ld^2 + Vd) + 12LTd $$
#
# This counts the whole $T \times T$ square, also where a kernel skips the masked half. That is the usual convention
# (PaLM, appendix B), and it makes the count a property of the model and not of the kernel.
#
# **Predict**: which share of GPT-2's training FLOPs at $T = 1024$ is the attention term?

# %% predict the share of attention
my_attention_share = None  # 0 to 1

# %% counts of the 124M model
big = GPT2Config.preset("gpt2")
total = flops_per_token(big, 1024)
share = 1 - 6 * matmul_params(big) / total
print(f"parameters       {param_count(big):>15,}")
print(f"of them multiply {matmul_params(big):>15,}")
print(f"FLOPs per token  {total:>15,}")
reveal("share of the attention term", my_attention_share, f"{share:.3f}")

# %% [markdown] check the count
# A formula is worth what a check of it is worth. PyTorch can count the FLOPs of every operator it really runs. The
# explicit attention is used here because the counter does not know every fused kernel.

# %% formula against count
small = GPT2Config.preset("cpu")
model = GPT2(small, attention="explicit")
text = torch.randint(small.vocab_size, (4, small.n_positions))
with FlopCounterMode(display=False) as counter:
    model.loss(text, text).backward()
print(f"formula {flops_per_token(small):,} FLOPs per token, counted {counter.get_total_flops() // text.numel():,}")

# %% [markdown] claim and fact
# > **Claim and fact: "a 671-billion-parameter model"**
# >
# > - **The claim.** Headlines give the size of DeepSeek-V3, and readers conclude that each token costs what all of its
# >   parameters cost.
# > - **What the report says.** 671B parameters in all, 37B *active* for a token: of 256 routed experts in a layer, a
# >   token visits 8, and one shared expert. (source: [DeepSeek-V3 report](https://arxiv.org/abs/2412.19437))
# > - **What you have just verified.** FLOPs follow the parameters that multiply *this* token. By $6N$ that is about
# >   $6 \cdot 37 \cdot 10^9 = 222$ GFLOP per token for training, plus attention, and not 4,026. Memory follows all
# >   671B. (measured: the formula that the cells above check)
# > - Two different numbers, two different bottlenecks: a later unit builds the experts, another one spreads them over
# >   ranks.

# %% [markdown] bytes
# ### Bytes
#
# Training keeps four things in memory. Three depend on the model only: weights, gradients, and AdamW's two moments. In
# float32 that is $4 + 4 + 8 = 16$ bytes a parameter. The fourth depends on the batch: **activations**, everything
# that forward must keep for backward. From the figure above, per block: 16 values per token and channel, and with
# explicit attention one probability per head and pair of tokens. Then the two ends: the input of the last norm and
# of the output matrix, and the log-probabilities (float32):
#
# $$ \text{bytes} = b\,\big(L\,(16\,BTd + BHT^2) + 2BTd\big) + 4BTV $$
#
# with $b$ bytes a value. **Predict**: the 124M model in bfloat16, 8 sequences of 1024 tokens. Which part is largest
# with explicit attention: weights with gradients and moments, the channels (16 BTd), the scores (BHT²), or the
# log-probabilities?

# %% predict the largest part
my_largest = None  # "state", "channels", "scores" or "log-probabilities"

# %% memory of the 124M model, counted
B, T = 8, 1024
gib = 2**30
with_scores = activation_bytes(big, B, T, bytes_per_value=2)
without = activation_bytes(big, B, T, bytes_per_value=2, scores=False)
log_probabilities = 4 * B * T * big.vocab_size
parts = {
    "state": sum(state_bytes(big).values()),
    "channels": without - log_probabilities,
    "scores": with_scores - without,
    "log-probabilities": log_probabilities,
}
for name, size in parts.items():
    print(f"{name:<18}{size / gib:6.2f} GiB")
reveal("largest", my_largest, max(parts, key=parts.get))

# %% [markdown] check the bytes
# Again the check: autograd hands every tensor that it keeps to a hook, and we add up their bytes. Statistics of the
# norms and the mask are not in the formula; they are the difference. This counts the same on every device.

# %% formula against autograd
for how in ("explicit", "sdpa"):
    model = GPT2(small, attention=how)
    kept = saved_bytes(model, lambda model=model: model.loss(text, text))
    counted = activation_bytes(small, *text.shape, scores=how == "explicit")
    print(f"{how:<9} counted {counted:,} bytes, kept {kept:,}: {kept / counted - 1:+.1%}")

# %% [markdown] what it means on two chips
# ### What the counts say about two chips
#
# Nothing has been trained yet, and the counts already bound what hardware can do. A chip's **peak** bounds tokens per
# second: peak FLOP/s over FLOPs per token. Its **memory** bounds the batch. Its **bandwidth** bounds the optimizer
# step, which does almost no arithmetic: it reads weights, gradients and two moments and writes weights and moments,
# 28 bytes a parameter in float32.

# %% the bounds on both vendors
for name in ("H100", "MI300X"):
    chip = CHIPS[name]
    bound = chip.peak("bf16") * 1e12 / total
    room = chip.memory_gb.value * 1e9 - sum(state_bytes(big).values())
    batch = int(room // activation_bytes(big, 1, 1024, bytes_per_value=2, scores=False))
    step_us = 28 * param_count(big) / (chip.bandwidth * 1e12) * 1e6
    print(chip.name)
    print(f"  bf16 peak {chip.peak_figure('bf16')}\n    -> at most {bound:,.0f} tokens/s")
    print(f"  memory    {chip.memory_gb}\n    -> at most {batch} sequences of 1024 in one batch (fused attention)")
    print(f"  bandwidth {chip.bandwidth_tb}\n    -> an optimizer step takes at least {step_us:,.0f} us")

# %% [markdown] bounds are not speeds
# These are upper bounds from data sheets, not speeds. How much of a bound a program reaches is what you measure next,
# and what this course is about.
#
# Play with the shape. Each part of the memory is a bar, the dashed line is what the chip has. Which part do you have to
# shrink first at 16,384 tokens? What does fused attention buy?

# %% play with the costs
explore("costs")

# %% [markdown] train
# ## 4. Train
#
# One step: draw a batch of random windows, forward, backward, clip the gradient's norm to 1, AdamW. Weight decay acts
# on matrices only: a bias or the gain of a norm has no reason to be small. The learning rate rises linearly for a few
# steps, because AdamW knows little of the gradient's size at first. Then it falls along half a cosine:
#
# $$ \eta_s = \begin{cases} \eta_{max}\,(s + 1)/w & s < w \\
# \eta_{min} + \tfrac12(\eta_{max} - \eta_{min})\left(1 + \cos \pi\,\tfrac{s - w}{S - w}\right) & w \le s < S \\
# \eta_{min} & s \ge S \end{cases} $$
#
# with $w$ warm-up steps of $S$ steps in all.

# %% the schedule
steps = range(config.steps)
rates = [config.learning_rate(step) for step in steps]
figure, axes = plt.subplots(figsize=(7, 2))
axes.plot(steps, rates)
axes.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
plt.show()
print(f"rises to {max(rates):g} at step {config.warmup}, falls to {rates[-1]:.2g} at step {config.steps - 1}")

# %% [markdown] predict training
# On a GPU the matrix products run in bfloat16 under autocast, with weights and moments in float32. On a CPU everything
# is float32.
#
# **Predict**: what is the loss on validation files at the end, and how many tokens per second will you see?

# %% predict the loss
my_loss = None  # nats per token
my_tokens_per_second = None

# %% train the model
result = train(config)
record = result.record
reveal("validation loss", my_loss, f"{record.final_val_loss:.2f} nats per token")
reveal("tokens per second", my_tokens_per_second, f"{record.tokens_per_second:,.0f}")
print(f"{record.bits_per_byte:.2f} bits per byte; {record.seconds:.0f} s")

# %% the loss curve
figure, axes = plt.subplots(figsize=(7, 4))
axes.plot(range(1, len(record.train_loss) + 1), record.train_loss, linewidth=0.8, label="train, each step")
axes.plot(*zip(*record.val_loss, strict=True), "o-", label="validation")
axes.axhline(math.log(config.corpus.vocab_size), color="grey", linestyle=":", label="uniform guess, ln V")
axes.axhline(record.unigram_nats, color="black", linestyle="--", label="unigram entropy")
axes.set(xlabel="step", ylabel="nats per token")
axes.legend()
plt.show()
below = next(step for step, loss in enumerate(record.train_loss, 1) if loss < record.unigram_nats)
print(f"starts at {record.train_loss[0]:.2f}, near ln V; first below the unigram entropy at step {below};")
print(f"ends {record.unigram_nats - record.final_val_loss:.2f} nats below it on files that it has never seen")

# %% [markdown] samples
# What does it write? Nobody told it a rule of Python's grammar; it has only seen which token follows which.

# %% the samples
for sample in record.samples:
    print(sample, "\n" + "-" * 60)

# %% [markdown] measure
# ## 5. Measure: how much of the machine did you use?
#
# **MFU**, model FLOPs utilisation, is the share of the peak that went into FLOPs the model needs:
#
# $$ \text{MFU} = \frac{\text{tokens/s} \times \text{FLOPs per token}}{\text{peak FLOP/s}} $$
#
# It punishes everything that is not a matrix product of the model: waiting for memory, launching kernels, recomputing.
# For a GPU the peak is the dense figure in the registry of chips. The registry has no CPUs, so there the fastest large
# matrix product is timed instead.
#
# **Predict**: your MFU.

# %% predict the MFU
my_mfu = None  # 0 to 1

# %% the MFU
print(
    f"{record.tokens_per_second:,.0f} tokens/s x {record.flops_per_token:,} FLOPs = "
    f"{record.tokens_per_second * record.flops_per_token / 1e9:,.0f} GFLOP/s"
)
if record.mfu is None:
    print(f"no MFU: {record.peak_source}")
else:
    print(f"peak {record.peak_flops / 1e9:,.0f} GFLOP/s ({record.peak_source})")
    reveal("MFU", my_mfu, f"{record.mfu:.2f}")
print(f"memory: {record.memory_bytes / gib:.2f} GiB, {record.memory_kind}")

# %% [markdown] where the time goes
# Where is the rest? A profile of one training step, by operator. `addmm`, `mm` and `bmm` are the matrix products that
# the formula counts. Everything else in the list does almost no arithmetic and is paid in bytes moved and kernels
# launched. Unit 04 fuses such operators; unit 13 reads profiles in earnest.

# %% profile of one step
from torch.profiler import ProfilerActivity, profile

activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
text = torch.randint(config.corpus.vocab_size, (config.batch, config.seq_len), device=device)
model = result.model
bf16 = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
with profile(activities=activities) as trace:
    with bf16:
        loss = model.loss(text, text)
    loss.backward()
model.zero_grad()

key = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
rows = sorted(trace.key_averages(), key=lambda row: -getattr(row, key))
whole = sum(getattr(row, key) for row in rows)
for row in rows[:8]:
    print(f"{getattr(row, key) / whole:6.1%}  {row.count:4} calls  {row.key[:80]}")

# %% [markdown] save
# ### Save the record
#
# Unit 15 compares with this file, and units on the way read it. Loss curve, configuration, versions, device,
# tokens/s, MFU, memory: a measurement without these is an anecdote.

# %% save the record
path = save_record(record)
print(path)
assert latest_record("01") == record

# %% [markdown] accumulation
# ## 6. A larger batch in the same memory
#
# Activations grow with the batch; gradients do not. **Gradient accumulation** runs several small batches, adds their
# gradients, and then does one optimizer step. The mean over a batch is the mean of the means of its equal parts, so
# each part's loss is divided by the number of parts. When the parts do not hold the same number of real tokens (because
# some are padding), that is no longer true: divide the *sum* of the losses by the tokens of the whole batch.
#
# **Predict**: a batch of 16 as 4 times 4. By what factor do the kept bytes shrink? And how far apart are the
# gradients: equal to the last bit, to rounding, or to a few percent?

# %% predict accumulation
my_factor, my_gradients = None, None

# %% one batch against four
model = GPT2(small, attention="explicit")
text = torch.randint(small.vocab_size, (16, 65))


def gradients(parts):
    model.zero_grad()
    for part in text.chunk(parts):
        (model.loss(part[:, :-1], part[:, 1:]) / parts).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


whole, accumulated = gradients(1), gradients(4)
bytes_whole = saved_bytes(model, lambda: model.loss(text[:, :-1], text[:, 1:]))
bytes_part = saved_bytes(model, lambda: model.loss(text[:4, :-1], text[:4, 1:]))
reveal("kept bytes shrink by", my_factor, f"{bytes_whole / bytes_part:.2f}")
reveal(
    "gradients agree",
    my_gradients,
    f"to rounding: relative difference {(whole - accumulated).norm() / whole.norm():.0e}",
)

# %% [markdown] cache
# ## 7. Generate: the KV cache
#
# To write one token, the model needs the keys and values of all tokens before it. They do not change when a token is
# appended, because attention is causal. So they are kept: each step computes $q$, $k$, $v$ of the new token only, and
# attends to the **cache**. A new block of several tokens works too; then query $i$ of the block sees the whole past and
# the block up to itself, so the mask is shifted by the length of the past.
#
# Without a cache, $n$ tokens cost $1 + 2 + \dots + n \approx n^2 / 2$ passes of a token through the model. With one,
# they cost $n$.
#
# **Predict**: how many times faster are the 120 tokens below with a cache? The count alone says about 60.

# %% predict the gain
my_gain = None

# %% with and without a cache
prompt = torch.tensor([corpus.tokenizer.encode("def ").ids], device=device)
fresh = min(120, config.model.n_positions - prompt.shape[1])
written, seconds = {}, {}
for use_cache in (True, False):
    start = time.perf_counter()
    written[use_cache] = generate(result.model, prompt, fresh, temperature=0, use_cache=use_cache)
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds[use_cache] = time.perf_counter() - start
print("same tokens:", torch.equal(written[True], written[False]))
reveal("times faster", my_gain, f"{seconds[False] / seconds[True]:.1f}")
print(f"with {seconds[True] * 1e3 / fresh:.2f} ms a token, without {seconds[False] * 1e3 / fresh:.2f} ms")

# %% [markdown] why so little
# Far less than the count says, because a step with a cache is a different kind of work. It does so few FLOPs that time
# goes into launching operators and reading weights: every weight is read to produce **one** token. The arithmetic
# intensity of a decoding step is about one FLOP per byte in bfloat16 for a batch of one (two FLOPs and two bytes per
# weight). A chip needs its **ridge** to be busy with arithmetic:

# %% how far decoding is from the ridge
for name in ("H100", "MI300X"):
    print(f"{CHIPS[name].name}: {CHIPS[name].ridge('bf16'):.0f} FLOP per byte (peak over bandwidth, bf16)")
print(f"GPT-2's cache: {kv_cache_bytes(big, 1, 1, bytes_per_value=2):,} bytes per token in bfloat16")

# %% [markdown] claim about caches
# > **Claim and fact: "the bigger model needs the bigger cache"**
# >
# > - **The claim.** More parameters, more memory for each token of context.
# > - **What the paper says.** DeepSeek-V3 (671B) keeps 70 KB of cache per token, Qwen2.5-72B 327 KB and Llama-3.1-405B
# >   516 KB. (source: ["Insights into DeepSeek-V3"](https://arxiv.org/abs/2505.09343))
# > - **What you have just counted.** GPT-2 keeps all heads: $2Ld$ values, 36,864 bytes a token in bfloat16. With 124
# >   million parameters that is already half of what DeepSeek-V3 keeps, a model more than five thousand times larger.
# >   (measured: the cell above)
# > - The cache follows the layers and what each head keeps. Grouped queries share keys between heads, as the next unit
# >   counts; MLA keeps one compressed vector, which a later unit builds.

# %% [markdown] porting
# ## 8. What changes on the other vendor
#
# The code that trained your model names no vendor. These are the places where it could have gone wrong:
#
# | Here | On NVIDIA | On AMD |
# |---|---|---|
# | device string | `"cuda"` | `"cuda"` too: PyTorch keeps the name; there is no `torch.hip` |
# | which one is it | `torch.version.cuda` is set | `torch.version.hip` is set, `torch.version.cuda` is `None` |
# | matrix products | cuBLAS | hipBLASLt, rocBLAS |
# | `F.scaled_dot_product_attention` | FlashAttention, cuDNN | AOTriton, tuned for contiguous (B, H, T, D) |
# | lanes that run together | a warp of 32 | a wavefront of 64 (Instinct) or 32 (Radeon RX 7000, 9000) |
# | fast on-chip memory of a block | shared memory | LDS: far less of it, as the cell below prints |
#
# The kernels under the operators are different programs, and the sums inside them run in another order. So the loss
# curve on another chip is not bitwise yours. Unit 03 ports this script, unit 09 says how far apart two curves may be.

# %% both chips side by side
for name in ("H100", "MI300X"):
    chip = CHIPS[name]
    limits = chip.limits
    print(f"{chip.name}: {chip.units.value:.0f} {'SMs' if chip.vendor == 'nvidia' else 'CUs'}, {limits.lanes} lanes")
    print(f"  on-chip memory of a block: {limits.shared_per_block / 1024:.0f} KiB ({limits.source})")
    print(f"  L2: {chip.l2_mb}")

# %% [markdown] one operator twice
# ### One operator of your model, compiled for both
#
# GELU is the simplest kernel in the profile. It reads a value, does about ten FLOPs, and writes a value: 8 bytes in
# float32, so about one FLOP per byte, far below either ridge. Below it is written in Triton, with
# $\tfrac12(1 + \tanh z) = \operatorname{sigmoid}(2z)$, and compiled for an H100 and an MI300X; nothing runs.
#
# A block of 1024 elements has 4 warps of 32 lanes there and 4 wavefronts of 64 lanes here.
#
# **Predict**: how many 128-bit loads (four floats each) does a lane issue, on NVIDIA and on AMD?

# %% predict the loads
my_loads_nvidia, my_loads_amd = None, None


# %% GELU for both vendors
@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    z = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + offsets, x * tl.sigmoid(2 * z), mask=offsets < n)


x = torch.linspace(-6, 6, 4096)
identity = x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
print(f"largest error of the identity: {(identity - F.gelu(x, approximate='tanh')).abs().max():.0e}\n")
for target, guess in (("sm_90", my_loads_nvidia), ("gfx942", my_loads_amd)):
    needs = resources(compile_for(gelu_kernel, target, (x, x, x.numel()), BLOCK=1024))
    print(needs)
    reveal("loads of 128 bits", guess, f"{needs.widths['global load'].get(128, 0)}\n")

# %% [markdown] loads explained
# 1024 floats over 128 lanes are eight a lane, over 256 lanes four. The same `num_warps` means twice the lanes on
# Instinct. Every tuning parameter of a kernel has such a hidden unit; unit 04 writes this kernel's backward too, runs
# both and counts the bytes. Point at a source line to see its instructions on both sides:

# %% listing of GELU
listing(gelu_kernel, "sm_90", "gfx942", args=(x, x, x.numel()), BLOCK=1024)

# %% [markdown] summary
# ## Summary
#
# - A model that beats the unigram entropy uses its context; bits per byte compare across tokenizers.
# - GPT-2 is 124,439,808 parameters by a formula that you can write down, and $6N + 12LTd$ FLOPs per token to train.
# - State costs 16 bytes a parameter; activations follow the batch, and scores follow $T^2$ unless attention is fused.
# - MFU is the share of the peak that the model itself needed. What is missing went into bytes and launches.
# - Accumulation trades time for memory. The KV cache trades memory for time. Both give the same result, to rounding.
#
# ## Read next
#
# - "Language Models are Unsupervised Multitask Learners" (2019), the GPT-2 paper:
#   https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf
# - "PaLM: Scaling Language Modeling with Pathways", appendix B, for MFU: https://arxiv.org/abs/2204.02311
# - "Reducing Activation Recomputation in Large Transformer Models", for activation memory:
# https://arxiv.org/abs/2205.05198
# - "Decoupled Weight Decay Regularization", for AdamW: https://arxiv.org/abs/1711.05101
# - "DeepSeek-V3 Technical Report": https://arxiv.org/abs/2412.19437
#
# ## Self-check
#
# <details><summary>The batch doubles. What else does: weights, moments, activations, FLOPs per token?</summary>
#
# Only the activations. FLOPs per step double, FLOPs per token stay.
# </details>
#
# <details><summary>You make attention skip the masked half. Does your MFU rise above what the hardware did?</summary>
#
# It can: the convention counts the full square, the kernel computes half of it. MFU stays comparable between kernels,
# because the model's FLOPs did not change. The time did.
# </details>
#
# <details><summary>Why does the loss start near ln V, not near the unigram entropy?</summary>
#
# Small random weights give logits near zero, so every token is as likely. Frequencies are the first thing it learns.
# </details>
#
# <details><summary>Batch of one, with a cache: does a chip with twice the FLOP/s, same bandwidth, help?</summary>
#
# Hardly. Decoding reads every weight for one token and sits far below the ridge: bandwidth is the bound.
# </details>
#
# Now open [lab 01](../labs/01_gpt2_baseline.ipynb): ten exercises, from attention to activation
# memory.
