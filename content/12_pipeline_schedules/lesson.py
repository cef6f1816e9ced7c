# %% [markdown] top
# # 12 Pipeline schedules
#
# **Afterwards you can** cut a model by layers and say what crosses each cut; read and check the order in which a rank
# works; count the time that is lost and the memory that is held; split the backward pass in two and fill gaps with one
# half; say what DeepSeek-V3's DualPipe overlaps, and what it pays; run an order on real ranks; and choose how many
# ways to cut a model for a given cluster.
#
# **You need** units 01 (GPT-2, its costs), 10 (DeepSeek's shape) and 11 (ranks, links, dispatch and combine). No GPU
# and no cluster. Orders are simulated, and run on real processes that talk through gloo. Nothing has run on NCCL or
# RCCL here.
#
# **Time**: three sittings. Reading (text and code at 200 words a minute) takes about 17, 17 and 16 minutes, all of it
# with the predictions about 45, 45 and 40 (a guess). All cells together run in half a minute on a quiet CPU. Then lab
# 12.

# %% imports
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.pipelining import ScheduleZBVZeroBubble
from torch.utils.flop_counter import FlopCounterMode

from gpu_utils import CHIPS, explore, lesson, predict

# %% [markdown] why layers
# # Sitting 1: stages and bubbles
#
# ## 1. A model that does not fit
#
# Training keeps more than weights. DeepSeek-V3 has 671 billion parameters. Suppose each costs 2 bytes as a weight for
# the products, 4 as a gradient, 4 as a master weight, and 2 for each of AdamW's two moments: 14 bytes.
#
# > **Facts: bytes of a parameter in DeepSeek-V3's training**
# >
# > - Master weights and gradients are FP32, both moments BF16. (source: DeepSeek-V3 report,
# >   [arXiv 2412.19437](https://arxiv.org/abs/2412.19437), section 3.3.3)
#
# (The 2 bytes of the working weight are our assumption.) Activations come on top.

# %% guess fit
memory = {name: CHIPS[name].memory_gb.value for name in ("H100", "MI300X")}
guess = predict(
    "12.fit",
    f"671 billion parameters, 14 bytes each. How many H100 ({memory['H100']} GB) hold "
    f"them, with nothing else? And how many MI300X ({memory['MI300X']} GB)?",
    h100=lesson.number("H100", factor=1.03),
    mi300x=lesson.number("MI300X", factor=1.03),
)

# %% fit
config = lesson.DeepSeekConfig.preset("v3")
parts = lesson.parameters(config)
params = sum(part.total for name, part in parts.items() if name != "MTP")
needed = {name: 14 * params / (1e9 * gb) for name, gb in memory.items()}
guess.reveal(
    h100=needed["H100"],
    mi300x=needed["MI300X"],
    because="671 × 14 = 9,394 GB, over 80 and over 192.",
)
lesson.sourced({name: CHIPS[name].memory_gb for name in memory})

# %% [markdown] three ways to cut
# So the model is cut. There are three places for the knife:
#
# - **between experts** (unit 11): each rank owns some. Tokens travel to them and back, in every layer;
# - **inside matrices**, *tensor parallelism*: each rank has some columns of one matrix and some rows of the next. The
#   ranks' results are parts of a sum, so each layer has two all-reduces in the forward pass and two in the backward
#   pass (source: [arXiv 2104.04473](https://arxiv.org/abs/2104.04473), section 2.3);
# - **between layers**, *pipeline parallelism*: a rank has a few layers in a row, a **stage**. What crosses the cut is
#   the activation between two layers on its way forward, and its gradient on the way back.
#
# What does each cost in bytes? A ring all-reduce over n ranks sends 2 (n - 1) / n of the tensor (unit 11). A batch is
# cut too, into **micro-batches**, which go through the model one by one. Let one be a sequence of 4,096 tokens, and the
# width 7,168.

# %% guess crossing
guess = predict(
    "12.crossing",
    "4,096 tokens, width 7,168, one layer, forward. A cut between layers: bf16. Two "
    "ring all-reduces over 8 ranks, bf16: what does a rank send? Experts: 8 copies of "
    "each token, FP8 out and bf16 back, none at home?",
    cut=lesson.number("a cut", unit="MB", factor=1.05),
    tensor=lesson.number("tensor parallelism", unit="MB", factor=1.05),
    expert=lesson.number("expert parallelism", unit="MB", factor=1.05),
)

# %% crossing
tokens, width = 4096, config.width
activation = tokens * width * 2 / 1e6  # MB
crosses = {
    "pipeline, a cut": activation,
    "tensor, a layer": 2 * 2 * (8 - 1) / 8 * activation,
    "experts, a layer": tokens * config.k * width * (1 + 2) / 1e6,
}
guess.reveal(
    cut=crosses["pipeline, a cut"],
    tensor=crosses["tensor, a layer"],
    expert=crosses["experts, a layer"],
    because="4,096 × 7,168 × 2; twice 2 × 7/8 of it; 8 × 3 bytes in place of 2.",
)
lesson.bars(crosses, "MB forward")

# %% [markdown] the cheap cut
# A cut between layers is the cheapest, and it comes once in a stage, not in every layer: with four layers in a stage
# the other two cost 14 and 48 times as much. So the pipeline is what one lays across slow links. What it costs is not
# bytes. It is time in which a rank has nothing to do.
#
# ## 2. One after the other
#
# Four ranks, four stages, one batch. A rank waits for its input, works, and sends on. For the work it sleeps: here four
# processes share a few CPU cores, and a GPU would do the work beside the CPU anyway. The whole batch takes 0.1 s in
# each stage; a micro-batch, a quarter of it, 0.025 s.


# %% a stage
def stage(micros):
    """One rank of a chain: receive, work, send on; when it worked."""
    rank, last, x = dist.get_rank(), dist.get_world_size() - 1, torch.zeros(1024)
    dist.barrier()
    worked = []
    for _ in range(micros):
        if rank > 0:
            dist.recv(x, rank - 1)
        began = time.monotonic()
        time.sleep(0.1 / micros)
        worked.append((began, time.monotonic()))
        if rank < last:
            dist.send(x, rank + 1)
    return worked


# %% guess chain
guess = predict(
    "12.chain",
    "Forward only, four stages. How long until the last rank is done with the batch in "
    "one piece? And in four micro-batches? Which share of that time does a rank work?",
    whole=lesson.number("one piece", unit="s", factor=1.15),
    cut=lesson.number("four micro-batches", unit="s", factor=1.15),
    share=lesson.number("works, four micro-batches", unit="%", factor=1.15),
)

# %% chain
runs = {n: lesson.run_ranks(stage, 4, shared={"micros": n}).values for n in (1, 4)}
took = {n: rows[-1][-1][1] - rows[0][0][0] for n, rows in runs.items()}
guess.reveal(
    whole=took[1],
    cut=took[4],
    share=100 * 0.1 / took[4],
    because="4 × 0.1 s. In micro-batches the last one starts after three others and "
    "passes four stages: 7 × 0.025 s, of which a rank works 4.",
)
drawn = {}
for n, rows in runs.items():
    zero = rows[0][0][0]
    spans = [[(began - zero, ended - zero) for began, ended in row] for row in rows]
    forwards = [[("F", rank, i) for i in range(n)] for rank in range(4)]
    name = f"{n} micro-batch" + "es" * (n > 1)
    drawn[name] = lesson.timed(forwards, spans, m=n)
lesson.schedule_figure(drawn, unit="s")

# %% [markdown] fill and drain
# In one piece a rank works for a quarter of the time: the model is spread over four ranks, and no faster than one.
# In micro-batches a rank works on one while its neighbour works on the one before. At the start later ranks wait for
# the first micro-batch, at the end early ones have nothing left. These two triangles are the **bubble**.
#
# ## 3. There and back
#
# Training goes back as well. Some words and letters, the same in this lesson, its lab and the library:
#
# | | |
# |---|---|
# | p | ranks of the pipeline |
# | m | micro-batches of a step of training |
# | F | a forward of one stage and one micro-batch |
# | B | its backward |
# | *action* | `("F", 3, 5)`: the forward of stage 3 for micro-batch 5 |
# | *order* | a list with, for each rank, the list of its actions: what it does, one after the other |
#
# Gradients of all m micro-batches are added up, and the optimizer moves the weights after the last one. So the step
# computes what one large batch would. (Asynchronous pipelines move weights without waiting, and have no bubble; a
# backward may then meet other weights than its forward did. They are not in this unit.)
#
# An order holds no times. A rank starts its next action when the one before has ended *and* what it needs has come.
# F needs the F of the stage before. B needs its own F, and the B of the stage behind. Rules of time belong to a
# simulator, and you write one in the lab. The simplest order is GPipe's: all forwards, then all backwards.

# %% guess gpipe
guess = predict(
    "12.gpipe",
    "Three ranks, four micro-batches, F takes 1, B takes 2, messages nothing. Draw "
    "it on paper. When does the step end? How long is each rank idle until then?",
    ends=lesson.number("ends at"),
    idle=lesson.number("idle, each rank"),
)

# %% gpipe by hand
p, m = 3, 4
gpipe = [
    [("F", rank, i) for i in range(m)] + [("B", rank, i) for i in range(m)]
    for rank in range(p)
]
run = lesson.simulated(gpipe, m, F=1, I=1, W=1)  # B is I + W: sitting 2
guess.reveal(
    ends=run.seconds,
    idle=run.idle[0],
    because="the last rank has 4 F behind 2 others' F, then 4 B, then two B's of "
    "others: 6 × 3. Each works 4 × 3 of it.",
)
lesson.schedule_figure({"GPipe": run})

# %% [markdown] bubble by a formula
# Rank 0 waits in the middle, the last rank at the start and at the end, and all wait equally long: (p - 1) (F + B).
# That follows from the figure. The first F has to pass p - 1 other stages before the last rank begins, and the last B
# has to come back through them.
#
# Two shares are in use. The bubble over the *work* of a rank is (p - 1) / m; over the *step* it is
# (p - 1) / (m + p - 1) (sources: arXiv 2104.04473, section 2.2.1;
# [arXiv 1811.06965](https://arxiv.org/abs/1811.06965), section 2.3). In this course, and in what the library calls
# `bubble`, it is the share of the step.

# %% guess share
guess = predict(
    "12.bubble_share",
    "p = 4. Which share of the step is bubble, with 4, 8 and 32 micro-batches?",
    four=lesson.number("m = 4", unit="%", factor=1.03),
    eight=lesson.number("m = 8", unit="%", factor=1.03),
    many=lesson.number("m = 32", unit="%", factor=1.03),
)

# %% share
rows = {m: lesson.scheduled("GPipe", p=4, m=m) for m in (4, 8, 16, 32)}
guess.reveal(
    four=100 * rows[4].bubble,
    eight=100 * rows[8].bubble,
    many=100 * rows[32].bubble,
    because="3/7, 3/11, 3/35.",
)
lesson.bars({f"m = {m}": 100 * run.bubble for m, run in rows.items()}, "% of the step")

# %% [markdown] many micro-batches
# GPipe's authors found it negligible from m = 4 p on (source: arXiv 1811.06965, section 2.3); here 16% are left, and
# whoever pays for the cluster may find that a lot. Then why not a thousand micro-batches? A batch has so many
# sequences and no more: its size is chosen for the training, not for the cluster. And data parallelism takes its share
# first. V3's step has 15,360 sequences (source: arXiv 2412.19437, section 4.2); sitting 3 counts how many of them one
# pipeline gets. The second reason is memory.
#
# ## 4. What is alive
#
# A forward leaves activations behind which its backward needs. They are *alive* from the start of F until the end of B.
# With GPipe all m micro-batches are alive on every rank before the first B. The remedy is an order with the same
# actions: a rank takes a micro-batch back as soon as it can, and only then starts another one. In between it does one
# forward, one backward, and so on: **1F1B**. The next figure has both on the same scale.

# %% guess alive
guess = predict(
    "12.alive",
    "p = 4, m = 8, F = 1, B = 2. How much sooner does the step end with 1F1B? How many "
    "micro-batches are alive at most: GPipe on any rank, 1F1B on rank 0, on rank 3?",
    sooner=lesson.number("sooner by"),
    gpipe=lesson.number("GPipe, any rank"),
    first=lesson.number("1F1B, rank 0"),
    last=lesson.number("1F1B, rank 3"),
)

# %% alive
every = {name: lesson.scheduled(name, p=4, m=8) for name in ("GPipe", "1F1B")}
guess.reveal(
    sooner=every["GPipe"].seconds - every["1F1B"].seconds,
    gpipe=every["GPipe"].memory[0],
    first=every["1F1B"].memory[0],
    last=every["1F1B"].memory[3],
    because="the first and the last action of a rank are where they were. Rank 0 "
    "starts four before its first comes back; the last rank turns around at once.",
)
lesson.schedule_figure(every)

# %% [markdown] memory of 1F1B
# The bubble is the same; what changes is memory. It no longer grows with m, and it is uneven: rank 0 holds p, the last
# rank one. Read in the figure what each rank does before its first backward: how many forwards, and why not one more?
# That rule is 12.one_f_one_b.
#
# (GPipe itself keeps only what crosses the cuts, and runs each forward once more in the backward pass: little memory,
# for another F of work. (source: arXiv 1811.06965, section 2.3) That goes with any order, stage by stage. 12.memory
# asks which stages need it.)
#
# And if there are fewer micro-batches than ranks? An order that counts on p of them breaks there. Your answer must not.
#
# ## 5. Orders that never end
#
# An order is **valid** if every action of every stage and micro-batch is there, once, on the right rank, *and* if
# there is some time at which each can start. The second cannot be seen on one rank. Two ranks, two micro-batches:
#
# | rank | order |
# |---|---|
# | 0 | F0, B0, F1, B1 |
# | 1 | F0, F1, B0, B1 |
#
# Each rank alone is right: each backward comes after its forward.

# %% guess stuck
guess = predict(
    "12.stuck",
    "Run the two orders together. After two of eight actions nothing moves. What does "
    "rank 0 wait for, what rank 1?",
    zero=lesson.choice("F0 of rank 1", "B0 of rank 1", "F1 of rank 1", label="rank 0"),
    one=lesson.choice("F1 of rank 0", "B0 of rank 0", "nothing", label="rank 1"),
)

# %% stuck
first = [("F", 0, 0), ("B", 0, 0), ("F", 0, 1), ("B", 0, 1)]
second = [("F", 1, 0), ("F", 1, 1), ("B", 1, 0), ("B", 1, 1)]
with lesson.kept_error(lesson.W2WError) as kept:
    lesson.simulated([first, second], m=2)
words = str(kept.error)
guess.reveal(
    zero="B0 of rank 1" if "needs B(stage 1, micro 0)" in words else "F0 of rank 1",
    one="F1 of rank 0" if "at its step 1, F(stage 1, micro 1)" in words else "nothing",
    because="each waits for what stands behind the other's waiting action.",
)
lesson.table({"the simulator": {"says": words}}, first="")

# %% [markdown] a circle
# Rank 0's B0 needs B0 of stage 1. Rank 1 would do that after its F1, and F1 needs F1 of stage 0, which rank 0 has
# behind its B0. A circle: a **deadlock**. No rank has made an error that it could know of. A checker must play all
# ranks together: start what can start, until nothing is left or nothing moves. In sitting 3 you see the same circle as
# a hang of real processes, and 12.validate finds it before.
#
# ## 6. More stages than ranks
#
# The bubble is (p - 1) times a stage's F + B. Make stages smaller, and it shrinks. With the same ranks: each gets v
# stages of 1/v of the layers, not next to each other but *interleaved*, stage s on rank s mod p. A micro-batch goes
# around v times. Small stages fill and drain sooner.
#
# Now a rank is more than a stage. So an order needs two things beside it: its **places**, the rank of each stage, and
# its **chain**, the stages that a micro-batch passes one after the other.

# %% guess interleaved
guess = predict(
    "12.interleaved",
    "p = 4, m = 8, F = 1, B = 2 for a quarter of the model. Two half-sized stages a "
    "rank, interleaved. How long is a rank idle, and how long with 1F1B? How many cuts "
    "between ranks does a micro-batch cross going forward, and how many with 1F1B?",
    two=lesson.number("idle, two stages a rank"),
    one=lesson.number("idle, 1F1B"),
    cuts=lesson.number("cuts, two stages a rank"),
    before=lesson.number("cuts, 1F1B"),
)

# %% interleaved
half = {"F": 0.5, "I": 0.5, "W": 0.5}
every = {
    "1F1B": lesson.scheduled("1F1B", p=4, m=8),
    "interleaved 1F1B": lesson.scheduled("interleaved 1F1B", p=4, m=8, **half),
}
places = {name: run.schedule.places for name, run in every.items()}  # rank by stage
cuts = {
    name: sum(at[stage] != at[stage + 1] for stage in range(len(at) - 1))
    for name, at in places.items()
}
guess.reveal(
    two=every["interleaved 1F1B"].idle[0],
    one=every["1F1B"].idle[0],
    cuts=cuts["interleaved 1F1B"],
    before=cuts["1F1B"],
    because="3 × 3 / 2 and 3 × 3. Eight stages have seven cuts, and no two stages in a "
    "row are on one rank.",
)
lesson.schedule_figure(every)

# %% [markdown] interleaved read
# Half the bubble, as the formula says: (p - 1) (F + B) / v, where F and B are those of all stages of a rank, and m is a
# multiple of p (source: arXiv 2104.04473, section 2.2.2). The price is messages, seven in place of three for each
# micro-batch and direction, and memory: at the right edge of the figure rank 0 holds 5.5 activations of a
# quarter of the model, in place of 4. It has to go further ahead before the first micro-batch comes back to it.
#
# ## 7. What formulas leave out
#
# A formula knows one F and one B. Real stages differ, and messages take time. Here the simulator is worth more. First
# the messages: let each be on its way for a quarter of an F.

# %% guess delay
guess = predict(
    "12.delay",
    "p = 4, m = 32, F = 1, B = 2: both take 105 without delay. A message takes 0.25. "
    "How much longer does GPipe's step take? And 1F1B's: as much, or more?",
    gpipe=lesson.number("GPipe: longer by", factor=1.05),
    other=lesson.choice("as much", "2 times as much", "9 times as much", label="1F1B"),
)

# %% delay
rows = {}
for name in ("GPipe", "1F1B"):
    without = lesson.scheduled(name, p=4, m=32).seconds
    with_delay = lesson.scheduled(name, p=4, m=32, link=0.25).seconds
    rows[name] = {
        **{"without delay": without, "with delay": with_delay},
        "longer by": with_delay - without,
    }
longer = {name: row["longer by"] for name, row in rows.items()}
times = longer["1F1B"] / longer["GPipe"]
guess.reveal(
    gpipe=longer["GPipe"],
    other="as much" if times < 1.5 else f"{'2' if times < 4 else '9'} times as much",
    because="3 delays on the way down, 3 on the way back. 1F1B pays again and again.",
)
lesson.table(rows, first="p = 4, m = 32")

# %% [markdown] memory buys patience
# In GPipe messages follow each other closely, and nobody waits for an answer except at the two ends: 3 delays down, 3
# back, whatever m is. In 1F1B a rank starts a forward only when a backward has come, so in the steady state neighbours
# answer each other, and each answer pays the delay both ways. More forwards ahead of the first backward would hide it,
# and GPipe has all of them ahead. That is what memory buys here: patience with slow links. How slow? The 58.7 MB of
# section 1 take 1.2 ms at 50 GB/s, and a layer's work takes some 6 ms at 40% of the FP8 peak (sitting 2): with four
# layers in a stage, a twentieth of F. A quarter is a much slower link.
#
# Now the stages. GPT-2's 12 layers make four stages of three. But the last stage also has the head, a product with the
# whole vocabulary.

# %% guess uneven
gpt2 = lesson.GPT2Config.preset("gpt2")
layer, head = 12 * gpt2.n_embd**2, gpt2.vocab_size * gpt2.n_embd
guess = predict(
    "12.uneven",
    "A layer multiplies with 12 d² weights, the head with V d: d = 768, V = 50,257. "
    "How many layers is the head worth? m = 32: how much longer than with 4 even "
    "stages does the step take?",
    layers=lesson.number("the head in layers", factor=1.05),
    longer=lesson.choice("times 1.1", "times 1.4", "times 1.8", label="the step"),
)

# %% uneven
v3_layer = sum(
    (
        parts["attention"].active / config.layers,
        parts["experts and gates"].active / (config.layers - config.dense_layers),
    )
)
in_layers = {"GPT-2": head / layer, "DeepSeek-V3": parts["head"].active / v3_layer}
last = 1 + in_layers["GPT-2"] / 3  # three layers and the head, in stages of three
scales = {"head on the last": (1, 1, 1, last), "even": ((3 + last) / 4,) * 4}
runs = {
    name: lesson.scheduled("1F1B", p=4, m=32, scale=scale)
    for name, scale in scales.items()
}
longer = runs["head on the last"].seconds / runs["even"].seconds
guess.reveal(
    layers=in_layers["GPT-2"],
    longer=lesson.nearest(longer, ("times 1.1", "times 1.4", "times 1.8")),
    because="5.5 layers; 8.5 on the last stage in place of 4.4 on each.",
)
lesson.table(
    {
        name: {
            **{"step": run.seconds, "bubble, %": 100 * run.bubble},
            "idle, rank 0": run.idle[0],
            "idle, rank 3": run.idle[3],
        }
        for name, run in runs.items()
    },
    first="four stages of GPT-2",
    note=f"the head in layers: DeepSeek-V3 {in_layers['DeepSeek-V3']:.2f}",
)

# %% [markdown] the slowest stage
# Once the pipeline is full, everybody moves at the pace of the slowest stage. (The even stages of the table share the
# same total: nobody does less work.) Three ranks are idle two thirds of the time, and none of it is in the formula.
# So one counts FLOPs of a stage, head and embedding too, before cutting: which stage gets fewer layers you decide
# in 12.bubble. DeepSeek-V3's head is worth 1.6 of its layers, by the parameters that a token uses; a vocabulary
# weighs less in a wide model.
#
# Play with two orders: more ranks, fewer micro-batches, a slower link. (I and W are the two parts of B, of sitting 2.)

# %% explorer
explore("schedule", "GPipe", second="1F1B", link=25)

# %% [markdown] end of sitting 1
# ## What you have
#
# - A cut by layers moves one activation for each micro-batch and direction; it costs idle time in place of bytes.
# - GPipe and 1F1B: (p - 1) (F + B) idle on each rank; alive are m micro-batches, or at most p.
# - Valid is what all ranks together can finish. A deadlock has no guilty rank.
# - v stages a rank: a bubble of 1/v, about v times the messages, and more activations.
# - Delays hurt orders that wait for answers, uneven stages hurt all.
#
# In the lab: 12.one_f_one_b, 12.validate, 12.bubble, 12.memory. Next: the backward pass is two things.

# %% first sitting ends
lesson.sitting("12", 1)

# %% [markdown] two halves
# # Sitting 2: the backward in two
#
# ## 8. Two gradients
#
# A linear layer is one product, y = x wᵀ. Its backward has two: the gradient of the input, g w, and the gradient of the
# weights, gᵀ x, where g is the gradient of y. The stage before waits for the first. Only the optimizer waits for the
# second, at the end of the step. Letters, as `torch.distributed.pipelining` has them:
#
# | | | waits for | somebody waits for it |
# |---|---|---|---|
# | **I** | gradient of the input | own F, I of the stage behind | yes |
# | **W** | gradients of the weights | own I | no |
# | **B** | both as one action | own F, B or I of the stage behind | yes |
#
# So B = I + W. (Beware: the zero-bubble paper calls I "B"; DeepSeek-V3's report means by B what we do.) How long is
# each? Count FLOPs, first of a linear layer alone, then of a block of GPT-2 with 1,024 tokens: its attention core
# multiplies activations with each other and has no weights. On the device "meta" tensors have shapes and no numbers.

# %% guess split
guess = predict(
    "12.split",
    "FLOPs, with F as 1. A linear layer: its I, its W. A whole block, where a fifth of "
    "F is attention's core, without weights: is I or W the larger?",
    i=lesson.number("linear layer, I"),
    w=lesson.number("linear layer, W"),
    block=lesson.choice("I", "W", "both alike", label="a block: larger"),
)


# %% split
def halves(module, *shape):
    """FLOPs of F, of I, and of W as what a full backward has beyond I."""
    x = torch.empty(*shape, requires_grad=True)
    weights = list(module.parameters())
    flops = {}
    with FlopCounterMode(display=False) as counter:
        y = module(x)
    flops["F"] = counter.get_total_flops()
    for name, of in {"I": [x], "weights alone": weights, "B": [x, *weights]}.items():
        with FlopCounterMode(display=False) as counter:
            torch.autograd.grad(y, of, torch.empty_like(y), retain_graph=True)
        flops[name] = counter.get_total_flops()
    flops["W"] = flops["B"] - flops["I"]
    return {name: flops[name] / flops["F"] for name in ("I", "W", "B", "weights alone")}


shape = lesson.GPT2Config(
    vocab_size=512, n_positions=1024, n_embd=768, n_layer=1, n_head=12
)
with torch.device("meta"):
    rows = {
        "linear layer": halves(torch.nn.Linear(768, 3072, bias=False), 1024, 768),
        "block of GPT-2": halves(lesson.Block(shape, 0, "explicit"), 1, 1024, 768),
    }
block = rows["block of GPT-2"]
guess.reveal(
    i=rows["linear layer"]["I"],
    w=rows["linear layer"]["W"],
    block="I" if block["I"] > 1.02 * block["W"] else "both alike",
    because="a product has two in its backward, one for each operand. In attention's "
    "core both operands are activations, so both are I's.",
)
lesson.table(rows, first="FLOPs, F = 1")

# %% [markdown] a trap
# So F = I = W is a fair first guess, and W is the smallest of the three. The zero-bubble paper counts the same for a
# layer (source: [arXiv 2401.10241](https://arxiv.org/abs/2401.10241), table 1).
#
# The last column is a trap. Ask autograd for the gradients of a block's weights alone, after I, and it computes I's
# products once more: the gradient has to pass through the layers to reach each weight. To split a *stage* one keeps
# the gradient at the output of each linear layer when I passes there, and starts W from there.
# `torch.distributed.pipelining` does so. It costs memory: an input x and a gradient g for each layer stay until W.
# That is why we count an activation as alive until W has ended.
#
# ## 9. W into the gaps
#
# In 1F1B the stage before waits for the whole B. With I alone the gradient goes up sooner, and W fills time in which a
# rank would wait. That is **ZB-H1**, "zero bubble, handcrafted, 1", which DeepSeek-V3's report calls ZB1P.

# %% guess zb
guess = predict(
    "12.zb_h1",
    "p = 4, m = 8, F = I = W = 1. How long is a rank idle with 1F1B? ZB-H1 saves one W "
    "for each of the p - 1 stages on the way back, and W's put off fill as much again "
    "at the end: (p - 1) (F + B - 2 W). How long then? And which of both holds more on "
    "rank 3?",
    before=lesson.number("idle, 1F1B"),
    after=lesson.number("idle, ZB-H1"),
    memory=lesson.choice("1F1B", "ZB-H1", "both alike", label="holds more on rank 3"),
)

# %% zb
every = {name: lesson.scheduled(name, p=4, m=8) for name in ("1F1B", "ZB-H1")}
one_last, zb_last = (run.memory[3] for run in every.values())
guess.reveal(
    before=every["1F1B"].idle[0],
    after=every["ZB-H1"].idle[0],
    memory="ZB-H1" if zb_last > one_last else "both alike",
    because="3 × 3 and 3 × 1. W's that wait keep their activations: rank 3 now holds "
    "as many as rank 0, which holds no more than before.",
)
lesson.schedule_figure(every)

# %% [markdown] what zb pays
# A third of the bubble, at the peak of 1F1B's *fullest* rank. All ranks hold p now: room that later ranks had anyway,
# if all GPUs have the same memory. (We count an activation whole until W. The paper counts what W needs as a little
# less than what I needs: its table 1.) 12.zero_bubble asks you for such an order. Look in the figure where each rank
# puts its W's, and why it may not put off one more.
#
# What if the three differ? Less W, less to fill with.

# %% guess ratio
guess = predict(
    "12.ratio",
    "The block above: I = 1.18, W = 0.82. By the formula, is a rank idle for longer or "
    "shorter than 3? And if W were as long as F + I?",
    block=lesson.choice("shorter", "3", "longer", label="I = 1.18, W = 0.82"),
    all=lesson.number("idle by the formula, I = 1, W = 2"),
)

# %% ratio
rows = {}
for i, w in ((1, 1), (1.18, 0.82), (1, 2)):
    rows[f"I = {i}, W = {w}"] = {
        "by the formula": lesson.idle_by_formula("ZB-H1", 4, I=i, W=w),
        "simulated": lesson.scheduled("ZB-H1", p=4, m=8, I=i, W=w).idle[0],
    }
guess.reveal(
    block="longer" if rows["I = 1.18, W = 0.82"]["by the formula"] > 3.01 else "3",
    all=rows["I = 1, W = 2"]["by the formula"],
    because="3 × (1 + 1.18 - 0.82) = 4.08; 3 × (1 + 1 - 2) = 0.",
)
lesson.table(rows, first="ZB-H1: p = 4, m = 8")

# %% [markdown] formulas have conditions
# Where W is longer than I the formula promises what no order can have: the first F must still pass p - 1 stages. A
# formula without its conditions is half a formula. The simulator agrees with this one where m is at least p and W no
# longer than F and I.
#
# With more memory the rest can be filled, too: the paper's ZB-H2 has up to 2p - 1 activations on a rank. And where
# times are uneven one need not write an order by hand: the paper measures F, I and W and searches (source: arXiv
# 2401.10241, sections 2.2 and 3).
#
# ## 10. A V
#
# Interleaving sends a micro-batch round and round. **ZBV** sends it down the ranks and back up: rank r has stages r
# and 2p - 1 - r, of half the size. The last stage is on rank 0, so the rank that starts a micro-batch also turns it
# around, and needs to wait for nobody to begin its way back. The paper promises zero bubble if F = I = W, at the
# memory of 1F1B (source: arXiv 2401.10241, section 6).

# %% guess zbv
guess = predict(
    "12.zbv",
    "p = 4, m = 8. Each F, I, W of a half-sized stage takes 0.5. Is a rank of our "
    "simulated ZBV idle for 0? And how many activations of half a stage does it hold?",
    zero=lesson.yes_no("idle for 0"),
    idle=lesson.number("idle, rank 3"),
    memory=lesson.number("held, half stages"),
)

# %% zbv
run = lesson.scheduled("ZBV", p=4, m=8, **half)
guess.reveal(
    zero=run.idle[3] == 0,
    idle=run.idle[3],
    memory=run.memory[3],
    because="rank 3 cannot begin before the first F has come through three half-sized "
    "stages. Eight halves are four wholes: p, as with 1F1B.",
)
lesson.schedule_figure({"ZBV": run})

# %% [markdown] zero and the optimizer
# The staircase at the start is left, and its mirror image at the end. Between them nobody waits. Now put two steps of
# training after each other: rank 0 ends early, just when it could start the next step, and the stairs fit together.
# Then the bubble is zero. But nobody may wait for all others in between, and most training does: the norm of all
# gradients, with which they are clipped, is a sum over all ranks. The paper lets each rank go on and takes a step
# back where the check fails afterwards (source: arXiv 2401.10241, section 4).
#
# ## 11. When an exchange is as long as the work
#
# So far messages were small. DeepSeek-V3's experts are on 64 GPUs in 8 nodes, and each layer has a dispatch and a
# combine in the open. By how much? Unit 11's numbers: a micro-batch of 4,096 tokens, width 7,168, FP8 out and bf16
# back, 50 GB/s over the network. A token has its experts on at most 4 of 8 nodes, of which one is its own half of the
# time: 3.5 copies cross.
#
# A token multiplies with some 585 million weights of a layer: 187 in attention, 398 in nine experts and the gate.
# (Attention's core, a seventh more at this length, is left out.)

# %% guess ratio of an exchange
guess = predict(
    "12.exchange",
    "4,096 tokens, 3.5 copies of 7,168 numbers each, 50 GB/s. How long is a dispatch, "
    "1 byte a number? A combine, 2 bytes? At how many TFLOP/s do the products, 2 × 585 "
    "million × 4,096 FLOP, take as long as both?",
    dispatch=lesson.number("dispatch", unit="ms", factor=1.05),
    combine=lesson.number("combine", unit="ms", factor=1.05),
    rate=lesson.number("rate", unit="TFLOP/s", factor=1.05),
)

# %% ratio of an exchange
sparse = config.layers - config.dense_layers
of_a_layer = {
    "attention": parts["attention"].active / config.layers,
    "experts and gate": parts["experts and gates"].active / sparse,
}
flops = 2 * sum(of_a_layer.values()) * tokens
crossing = tokens * 3.5 * width  # numbers
network = lesson.LINKS["InfiniBand NDR"].bandwidth
out, back = crossing / network, 2 * crossing / network
guess.reveal(
    dispatch=1e3 * out,
    combine=1e3 * back,
    rate=flops / (out + back) / 1e12,
    because="102.8 MB over 50 GB/s, and twice that; 4.79 TFLOP in 6.17 ms.",
)
peak = CHIPS["H100"].peak("fp8")
lesson.table(
    {
        "FLOP of a forward, TFLOP": flops / 1e12,
        "dispatch and combine, ms": 1e3 * (out + back),
        "equally long at, TFLOP/s": flops / (out + back) / 1e12,
        "of an H100's FP8 peak, %": 100 * flops / (out + back) / 1e12 / peak,
    }
)

# %% [markdown] one to one
# So a rank that reaches some 40% of the FP8 peak, and does one after the other, computes half of the time. The faster
# its kernels, the less. The report says the same:
#
# > **Facts: DualPipe**
# >
# > - Expert parallelism across nodes makes computation to communication about 1 : 1 in DeepSeek-V3. (source:
# >   DeepSeek-V3 report, arXiv 2412.19437, section 3.2.1)
# > - A forward and a backward are divided into attention, dispatch, MLP and combine, attention and MLP of the backward
# >   further into I and W, and the parts of one forward and one backward are rearranged so that all exchanges are
# >   hidden. (source: DeepSeek-V3 report, section 3.2.1)
# > - Both ways dispatch is FP8 and combine BF16. (source: DeepSeek-V3 report, section 3.3.3)
#
# In one forward nothing can hide: experts wait for the dispatch, the combine for experts. It takes *another*
# micro-batch. While the forward of one is in its dispatch, the backward of another is in its attention. Such a pair is
# **F&B**, one step. Take the work of F, of I and of W as 1 each. F and I carry an exchange of 1 as well.

# %% guess together
guess = predict(
    "12.together",
    "Work: F, I, W 1 each. Exchanges: 1 in F, 1 in I. How long do F and B take one "
    "after the other, nothing hidden? And as a pair, with all exchanges behind work?",
    apart=lesson.number("one after the other"),
    pair=lesson.number("as a pair"),
)

# %% together
work, exchange = {"F": 1, "I": 1, "W": 1}, {"F": 1, "I": 1, "W": 0}
apart = sum(work.values()) + sum(exchange.values())
pair = max(sum(work.values()), sum(exchange.values()))
guess.reveal(
    apart=apart,
    pair=pair,
    because="3 + 2; and the longer of both, if everything fits.",
)
lesson.table({"apart": apart, "F&B": pair, "together, share": pair / apart})

# %% [markdown] two directions
# Where does a rank find a forward and a backward to pair? In 1F1B's steady state they alternate, and for much of the
# step, warm-up and cool-down, there is only one kind. **DualPipe** feeds micro-batches from *both* ends of the
# pipeline. Each rank holds two stages: r of a copy of the model that goes down the ranks, and p - 1 - r of a copy that
# goes up. A rank near one end is early for one half of the micro-batches and late for the other. So while forwards of
# one direction still come in, backwards of the other come back, and they make pairs.
#
# | | idle time of a rank | parameters | activations |
# |---|---|---|---|
# | 1F1B | (p - 1) (F + B) | 1× | p |
# | ZB1P, which is ZB-H1 | (p - 1) (F + B - 2 W) | 1× | p |
# | DualPipe | (p/2 - 1) (F&B + B - 3 W) | 2× | p + 1 |
#
# > **Facts: the table above**
# >
# > - Idle time, parameters and activations of the three schedules; F&B is the time of a pair. (source: DeepSeek-V3
# >   report, arXiv 2412.19437, table 2)
#
# The report's example: 8 ranks, 20 micro-batches. Costs as above, F = 2, I = 2, W = 1, exchanges inside. First with
# nothing hidden, so that a pair takes 5; then with a pair of 3.

# %% guess dualpipe
guess = predict(
    "12.dualpipe_idle",
    "p = 8, F = 2, B = 3, W = 1. By the table: how long is a rank idle with ZB1P? With "
    "DualPipe, if a pair takes 5? If it takes 3? And m = 20: about how much of ZB1P's "
    "step does DualPipe save then?",
    zb=lesson.number("idle, ZB1P"),
    apart=lesson.number("idle, DualPipe, pair 5"),
    pair=lesson.number("idle, DualPipe, pair 3"),
    saved=lesson.choice("a tenth", "a fifth", "over a quarter", label="of the step"),
)

# %% dualpipe
pairs = {"pair of 5": 1.0, "pair of 3": 0.6}  # times F + B = 5
costs = {"F": 2, "I": 2, "W": 1}
runs = {"ZB-H1": lesson.scheduled("ZB-H1", p=8, m=20, **costs)}
by_formula = {"ZB-H1": lesson.idle_by_formula("ZB-H1", 8, **costs)}
for pair, together in pairs.items():
    name, costs["together"] = f"DualPipe, {pair}", together
    runs[name] = lesson.scheduled("DualPipe", p=8, m=20, **costs)
    by_formula[name] = lesson.idle_by_formula("DualPipe", 8, **costs)
saved = 1 - runs["DualPipe, pair of 3"].seconds / runs["ZB-H1"].seconds
guess.reveal(
    zb=by_formula["ZB-H1"],
    apart=by_formula["DualPipe, pair of 5"],
    pair=by_formula["DualPipe, pair of 3"],
    saved={1: "a tenth", 2: "a fifth"}.get(round(10 * saved), "over a quarter"),
    because="7 × (2 + 3 - 2), 3 × (5 + 3 - 3), 3 × (3 + 3 - 3). Pairs save 2 of 5 "
    "for most micro-batches.",
)
lesson.table(
    {
        name: {
            **{"idle by the table": by_formula[name], "step, simulated": run.seconds},
            "idle, rank 0": run.idle[0],
            "idle, rank 3": run.idle[3],
            "activations": max(run.memory),
        }
        for name, run in runs.items()
    },
    first="p = 8, m = 20",
)

# %% [markdown] before the drawing
# To read an order, a smaller one: 4 ranks, 12 micro-batches, 0 to 5 down the ranks and 6 to 11 up. A bar marks the
# stage of the copy that goes up.

# %% dualpipe drawn
small = lesson.scheduled("DualPipe", p=4, m=12, **costs)
lesson.schedule_figure({"DualPipe, pair of 3": small})

# %% explorer of halves
explore("schedule", "ZB-H1", second="DualPipe", p=8, m=20, W=50, together=60)

# %% [markdown] dualpipe read
# (The explorer starts with the table's costs: I = 100% and W = 50% of F. The formula needs a pair that is no shorter
# than B: try W = 100%, where it promises 2.4 and the middle ranks wait for 3.6.) Three things to see. Without overlap
# DualPipe is hardly better than ZB1P: 115 against 121. What it is for is the pair. Second, the simulated ranks are not
# all idle for as long as the formula says: those in the middle, where the two directions meet, are; the outer ones have
# more forwards and backwards that find no partner, work longer, and are idle for less.
#
# Third, read a lane of the figure from left to right. Forwards of one direction, until those of the other arrive.
# Forwards of both. A few backwards in halves, so that the neighbour need not wait for W. Then pairs in turn: forward of
# one direction with backward of the other, then with the roles changed. When forwards of one direction have run out,
# pairs and backwards alone; then backwards in halves, and last the W's that are left. Rank r and rank p - 1 - r do the
# same with directions swapped. The number of each depends on how far the rank is from its nearer end. 12.dualpipe asks
# you for such an order. The more micro-batches, the more of the step is pairs: all that is not a pair depends on p
# alone.
#
# **What it costs.** Two copies of the weights. A stage's weights are on two ranks, and so are halves of its gradients,
# which are added up between them at the end of the step. With 64-way expert parallelism a rank has 4 of 256 experts a
# layer, so twice that is bearable (the report says so in section 3.2.1). And p + 1 activations instead of p.
#
# **DualPipeV.** Look at the first half of DualPipe's ranks alone: their two stages each, r and p - 1 - r, are the whole
# model, once. So cut there. A micro-batch that has come down to the last of them turns around and goes up through the
# others' second stages: a V as in ZBV, with pairs, and one copy of the weights is enough. With the same number of ranks
# its stages are half as large.

# %% guess folded
guess = predict(
    "12.folded",
    "DualPipe with 16 ranks holds 17 activations of its stages. Cut and with "
    "half-sized stages, as DualPipeV on 8 ranks: how many of the old size does a rank "
    "hold? m = 20 and a pair of 3 as before (87): is the step shorter, alike, longer?",
    held=lesson.number("of a whole stage"),
    step=lesson.choice("shorter", "within 2%", "longer", label="step"),
)

# %% folded
halved = {"F": 1, "I": 1, "W": 0.5, "together": 0.6}
runs["DualPipeV, pair of 3"] = lesson.scheduled("DualPipeV", p=8, m=20, **halved)
two, one = (runs[f"{name}, pair of 3"] for name in ("DualPipe", "DualPipeV"))
change = one.seconds / two.seconds - 1
guess.reveal(
    held=max(one.memory) / 2,
    step="within 2%" if abs(change) < 0.02 else "longer" if change > 0 else "shorter",
    because="17 halves. It has more steps before the first pair, each half as long.",
)
lesson.table(
    {
        "DualPipe": {"step": two.seconds, "held": max(two.memory), "copies": 2},
        "DualPipeV": {"step": one.seconds, "held": max(one.memory) / 2, "copies": 1},
    },
    first="p = 8, m = 20, pair of 3",
)

# %% [markdown] pairs elsewhere
# Nearly the same, for half of the weights.
#
# > **Claim and fact: the bubble is why V3 needed DualPipe**
# >
# > - Claim: DualPipe's point is fewer bubbles. Fact: where nothing is hidden, its step is 5% shorter than ZB1P's; with
# >   exchanges hidden in pairs, 28%. (measured: simulated in the cell "dualpipe", 8 ranks and 20 micro-batches)
# > - The report names both, and calls the overlap more important. (source: DeepSeek-V3 report, arXiv 2412.19437,
# >   section 3.2)
# > - Pairs need no two directions: Megatron Core pairs a forward and a backward of neighbouring micro-batches in its
# >   1F1B, to hide dispatch and combine. (source: [Megatron Core, Combined
# >   1F1B](https://docs.nvidia.com/megatron-core/developer-guide/nightly/user-guide/features/moe_a2a_overlap.html))
#
# ## 12. What torch has
#
# | schedule | in `torch.distributed.pipelining` (2.13) | stages a rank |
# |---|---|---|
# | GPipe | `ScheduleGPipe` | 1 |
# | 1F1B | `Schedule1F1B` | 1 |
# | interleaved 1F1B | `ScheduleInterleaved1F1B` | v |
# | forwards of all stages, breadth first | `ScheduleLoopedBFS` | v |
# | ZB1P, interleaved | `ScheduleInterleavedZeroBubble` | v |
# | ZBV | `ScheduleZBVZeroBubble` | 2 |
# | DualPipeV | `ScheduleDualPipeV` | 2 |
#
# Each makes an order for a rank before anything runs, then sends and receives are put in, then it runs. There is no
# DualPipe with two copies. Is our ZBV torch's? Its method needs to know three numbers, so an object that has only
# these will do. Torch prints an action as stage, letter, micro-batch; an action it calls `FULL_BACKWARD` is our B.

# %% guess torch
guess = predict(
    "12.torch",
    "p = 4, m = 8. How many actions has rank 0 in ZBV? Are torch's the same in the "
    "same order as ours?",
    actions=lesson.number("actions"),
    same=lesson.yes_no("the same order"),
)

# %% torch
like = SimpleNamespace(pp_group_size=4, num_stages=8, _n_microbatches=8)
rank_order = ScheduleZBVZeroBubble._calculate_single_rank_operations
theirs = [[str(a) for a in rank_order(like, rank) if a] for rank in range(4)]
ours = [
    [f"{stage}{kind}{micro}" for kind, stage, micro in steps]
    for steps in lesson.scheduled("ZBV", p=4, m=8).schedule.order
]
guess.reveal(
    actions=len(theirs[0]),
    same=theirs == ours,
    because="two stages, eight micro-batches, F, I and W of each: 48.",
)
lesson.table(
    {"torch": {"": " ".join(theirs[0][:16])}, "ours": {"": " ".join(ours[0][:16])}},
    first="rank 0 begins",
)

# %% [markdown] end of sitting 2
# ## What you have
#
# - B is I and W. The stage before waits for I only; W costs memory while it waits.
# - ZB-H1: a third of 1F1B's bubble if F = I = W, and p activations on every rank. ZBV: next to none, with stairs.
# - DualPipe pairs a forward with a backward of the other direction, to hide exchanges; it pays with two copies.
# - A formula has conditions; simulate where they do not hold.
#
# In the lab: 12.zero_bubble and 12.dualpipe. Next: real ranks, and a cluster.

# %% second sitting ends
lesson.sitting("12", 2)

# %% [markdown] real ranks
# # Sitting 3: on ranks, and on a cluster
#
# ## 13. GPT-2 in four stages
#
# A simulator says what *would* take how long. Do real ranks with real messages compute the right thing? A small GPT-2
# is cut in four stages, one for each of four processes. They run any order of this unit: a rank takes its next step,
# waits for what it needs, computes, and sends on. All messages of a step are asked for before it begins, each with a
# tag of its own, so no rank has to receive in some other order than things come.
#
# What is compared: each gradient after a step with that of the whole model in float64. The bound is unit 11's, for
# float32 sums in another order.
#
# One thing is special. GPT-2's token embedding is also its head (unit 01). The first stage has it for the embedding,
# the last for the head. Each finds a part of its gradient.

# %% guess gradients
guess = predict(
    "12.gradients",
    "A step of 8 micro-batches, each 2 sequences of 32 tokens, width 32, float32. How "
    "many bytes does rank 0 send to rank 1 with 1F1B, how many with ZBV? Which of four "
    "orders, 1F1B, ZB-H1, ZBV and DualPipe, give the whole model's gradients?",
    line=lesson.number("1F1B", unit="bytes"),
    v=lesson.number("ZBV", unit="bytes"),
    right=lesson.choice("1F1B only", "those with B as one action", "all four"),
)

# %% gradients
layouts = {"1F1B": "line", "ZB-H1": "line", "ZBV": "V", "DualPipe": "two ways"}
runs = {}
for name, layout in layouts.items():
    order = lesson.scheduled(name, p=4, m=8).schedule.order
    runs[name] = lesson.pipelined(order, m=8, layout=layout, steps=1)
guess.reveal(
    line=runs["1F1B"].sent[0][1],
    v=runs["ZBV"].sent[0][1],
    right="all four" if all(run.within for run in runs.values()) else "1F1B only",
    because="8 × 2 × 32 × 32 × 4, one cut. In a V there are two: forwards down, and "
    "gradients of the way back up. An order changes when, not what.",
)
lesson.table(
    {
        name: {
            "gradients off by": run.gradients,
            "float32 may be": run.gradients_may,
            "the whole model's": run.within,
        }
        for name, run in runs.items()
    },
    first="order on four ranks",
)

# %% [markdown] gradients read
# All four, to the same few parts in ten million. An order changes when a gradient is computed, and the order in which
# the parts of micro-batches are added, and nothing else.
#
# The tied weight needs one more message: both parts are added up before the optimizer moves it, on both ranks alike.
# Whoever forgets that trains two matrices that were to be one. (In a V both are on rank 0, and no message is needed.)
# DualPipe's two copies do so with every weight. In the other orders a weight lives on one rank, and needs nothing; with
# data parallelism each stage sums over its replicas, as in unit 11.
#
# For I and W the ranks call torch's own functions, `stage_backward_input` and `stage_backward_weight`: the second
# starts at the gradients that the first has kept, and does none of its products again.
#
# ## 14. Measured beside simulated
#
# Time is another matter. Four processes share a few CPU cores here, and a GPU would not. So each step computes really,
# and then sleeps until a stated time is over, which stands for the GPU's work. What is real is the order, the messages
# and all waiting for each other. The runs of the last cell were timed so. The figure has the measured run above and the
# simulated one under it.

# %% guess measured
guess = predict(
    "12.measured",
    "F, I and W of a stage are to take 0.02 s each, a message 0.002 s. 1F1B, p = 4, "
    "m = 8: how long does a step take on paper, messages left out? How much longer, by "
    "the clock, in percent?",
    paper=lesson.number("on paper", unit="s", factor=1.02),
    longer=lesson.choice("under 20%", "20% to 50%", "over 50%", label="by the clock"),
)

# %% measured
one = runs["1F1B"]
paper = lesson.scheduled("1F1B", p=4, m=8, F=0.02, I=0.02, W=0.02).seconds
more = 100 * (one.measured.seconds / paper - 1)
guess.reveal(
    paper=paper,
    longer="under 20%" if more < 20 else "20% to 50%" if more < 50 else "over 50%",
    because="11 × 0.06. Messages are short against steps, and so is the real work.",
)
both = {"1F1B, measured": one.measured, "1F1B, simulated": one.simulated}
lesson.schedule_figure(both, unit="s")

# %% measured zb
zb = runs["ZB-H1"]
both = {"ZB-H1, measured": zb.measured, "ZB-H1, simulated": zb.simulated}
lesson.schedule_figure(both, unit="s")

# %% [markdown] measured read
# What is measured is a little longer: messages are copied, ranks start a step late, the machine does other things too.
# The shape is the simulator's, step by step. So one rule, a rank's last step has ended and what it needs has come, is
# enough to say what ranks will do.
#
# ## 15. A hang
#
# The circle of section 5, on two real ranks. Each step waits for its message.

# %% guess hang
guess = predict(
    "12.hang",
    "Both ranks wait for a message, and `seconds` is 3. Does either raise an error, so "
    "that the run ends at once? Whom does the report name?",
    ends=lesson.choice("at once", "after 3 s"),
    named=lesson.choice("rank 0", "rank 1", "both", "nobody"),
)

# %% hang
began = time.monotonic()
with lesson.kept_error(lesson.RankFailed) as kept:
    lesson.pipelined([first, second], m=2, seconds=3)
words = str(kept.error)
guess.reveal(
    ends="after 3 s" if time.monotonic() - began >= 3 else "at once",
    named="both" if words.startswith("ranks 0 and 1") else "nobody",
    because="nobody has failed. A limit of time ends the ranks that are not back.",
)
lesson.table({"run_ranks": {"says": words}}, first="")

# %% [markdown] hang read
# Both are named, and neither is guilty: each waits at a receive, in a line that is right. This is what a wrong schedule
# looks like on a cluster, after a time-out of minutes. A checker that plays all ranks at once says it before.
#
# ## 16. Two vendors, one pipeline
#
# A pipeline is sends and receives, nothing else.
#
# > **Facts: sends and receives**
# >
# > - NCCL has `ncclSend` and `ncclRecv`; those that must progress together belong into one group. (source: [NCCL user
# >   guide, point-to-point
# >   communication](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html))
# > - RCCL has collectives and direct point-to-point sends and receives, over PCIe and xGMI in a node and InfiniBand,
# >   RoCE or TCP/IP between nodes. (source: [RCCL
# >   documentation](https://rocm.docs.amd.com/projects/rccl/en/docs-6.2.1/index.html))
# > - AMD's Primus trains with Megatron-LM, TorchTitan and other frameworks as its backends. (source: [Primus
# >   glossary](https://rocm.docs.amd.com/projects/primus/en/latest/01-getting-started/glossary.html))
#
# In torch both are `"nccl"`, and `torch.distributed.pipelining` is the same code for both. On NCCL and RCCL messages
# have no tags: the two ends of a link must agree on the order of its messages. So for a GPU a schedule also fixes the
# order of sends and receives, and groups those that cross. What differs between the vendors is what a cluster is made
# of: memory of a chip and links in a node. That decides how a model is cut.
#
# ## 17. What more stages buy
#
# Take DeepSeek-V3 on 2,048 GPUs. Its routed experts are dealt out over 64 ranks, each of the 64 has a copy of
# everything else. p stages; what is left, 2,048 / p / 64, is replicas. A rank's share of parameters is what it holds of
# weights (2 bytes) and gradients (4). The optimizer's 8 bytes are dealt out over all ranks that hold the same weight:
# that is **ZeRO-1**, and it moves no more bytes than a sum of gradients does (source: ZeRO, [arXiv
# 1910.02054](https://arxiv.org/abs/1910.02054)).
#
# And activations? With 1F1B rank 0 holds p micro-batches, each for its layers, 61 / p.

# %% guess stages
guess = predict(
    "12.stages",
    "2,048 GPUs, experts over 64. From 8 to 16 stages: what becomes of the weights and "
    "gradients of a rank? Of the activations on rank 0? The step has 15,360 sequences, "
    "a micro-batch is one: what becomes of the bubble's share?",
    weights=lesson.choice("half", "the same", "twice", label="weights"),
    alive=lesson.choice("half", "the same", "twice", label="activations"),
    bubble=lesson.choice("half", "about the same", "twice", label="bubble"),
)

# %% stages
routed = sparse * config.experts * 3 * width * config.expert_width  # parameters
rest, experts_over = params - routed, 64


def cut(p, copies=1, chips=2048):
    """GB of a rank, and how its step looks, with p stages; copies: 2 in DualPipe."""
    pipelines = chips // p  # each with its own sequences
    share = rest / p, routed / p / experts_over
    same = pipelines, pipelines // experts_over  # ranks that hold the same
    states = 8 * sum(part / ranks for part, ranks in zip(share, same, strict=True))
    micros = 15_360 // pipelines
    return {
        "weights, gradients, GB": copies * 6 * sum(share) / 1e9,
        "optimizer, GB": states / 1e9,
        "layers alive on rank 0": min(p, micros) * config.layers / p,
        "micro-batches": micros,
        "bubble of 1F1B, %": 100 * (p - 1) / (micros + p - 1),
    }


rows = {p: cut(p) for p in (4, 8, 16, 32)}


def change(name):
    return rows[16][name] / rows[8][name]


guess.reveal(
    weights="half" if change("weights, gradients, GB") < 0.6 else "the same",
    alive="the same" if change("layers alive on rank 0") == 1 else "half",
    bubble="about the same" if 0.8 < change("bubble of 1F1B, %") < 1.2 else "twice",
    because="p times 61/p layers is 61. And fewer pipelines get more sequences each: "
    "m grows with p.",
)
lesson.table(rows, first="stages")

# %% [markdown] what it buys
# Read the columns. More stages divide weights and gradients (and with them the sum of gradients over the replicas at
# the end of a step, which is left out here; 12.choose counts it), and nothing else. *Activations* of the fullest rank
# stay what they are: one micro-batch for all 61 layers. The *bubble* hardly changes, because on a given number of GPUs
# with a given batch, more stages mean fewer pipelines, and each gets more micro-batches: 7.5 p here, so it is (p - 1) /
# (8.5 p - 1). A pipeline is a way to fit weights into memory. If they fit with fewer stages, nothing is won by more.
#
# (Optimizer states gain nothing either: more stages leave fewer replicas to share them, so p cancels.)
#
# ## 18. What is left for activations
#
# V3 has 16 stages and DualPipe: two copies of weights, and in our count of gradients, and 17 activations of a stage in
# place of 16. Of what memory? Its chip is the H800, for whose memory the course has no source; we take the H100's.

# %% guess left
guess = predict(
    "12.left",
    f"16 stages, two copies. What is left of {memory['H100']} GB? Over 17/16 × 61 "
    "layers × 4,096 tokens: how many KB for a token in a layer? Queries, keys and "
    "values of 128 heads in bf16, (192 + 192 + 128) numbers each: how many KB alone?",
    left=lesson.number("left", unit="GB", factor=1.1),
    token=lesson.number("a token in a layer", unit="KB", factor=1.1),
    heads=lesson.number("q, k, v", unit="KB", factor=1.05),
)

# %% left
v3 = cut(16, copies=2)
rows = {}
for name in memory:
    held = v3["weights, gradients, GB"] + v3["optimizer, GB"]
    free = memory[name] - held
    kept = 1e6 * free / (17 / 16 * config.layers * tokens)
    rows[name] = {"held, GB": held, "left, GB": free, "a token in a layer, KB": kept}
heads = 2 * config.heads * (2 * (config.nope + config.rope) + config.v_head) / 1e3
guess.reveal(
    left=rows["H100"]["left, GB"],
    token=rows["H100"]["a token in a layer, KB"],
    heads=heads,
    because="23.1 GB are held; 56.9 GB over 265,472 tokens and layers; 131 KB, more "
    "than half of that.",
)
lesson.table(rows, first="16 stages, two copies, as V3")

# %% [markdown] why recompute
# Two hundred thousand bytes for a token sound like much. Queries, keys and values would take over half. The inputs of
# nine experts and of their SwiGLUs, in FP8, take 9 × (7,168 + 2 × 2,048) bytes more: 101 KB. Together that is more than
# there is. So one sees what the report's sections on memory are for:
#
# > **Facts: memory in DeepSeek-V3's training**
# >
# > - RMSNorms and the up-projections of MLA are computed again in the backward pass, so their outputs are not kept.
# >   (source: DeepSeek-V3 report, arXiv 2412.19437, section 3.2.3)
# > - Inputs of most linear layers are kept in FP8, inputs of SwiGLU as well, its outputs computed again. (source:
# >   DeepSeek-V3 report, section 3.3.3)
#
# On a chip with 192 GB almost three times as much is left. Then less must be computed again, or a micro-batch has more
# tokens, or there are fewer stages.
#
# ## 19. The price of tensor parallelism
#
# It divides activations too, and was not used. What would it cost? Section 1: two all-reduces a layer, forward, 205.5
# MB sent by each of 8 ranks in a node. An H100 and an H800 send by NVLink to a switch. An MI300X has a link to each of
# seven others, all at work in a direct all-reduce (unit 11). Beside it, what a rank would compute: an eighth of 4.79
# TFLOP, at 40% of its FP8 peak.

# %% links of a node
links = lesson.LINKS
of_a_node = {
    "H100, one way": links["NVLink 4"].gb,
    "H800, used": links["NVLink 4 of H800"].usable_gb,
    "MI300X, one of seven, used": links["xGMI of MI300X"].usable_gb,
}
lesson.sourced(of_a_node | {"to other nodes, each GPU": links["InfiniBand NDR"].gb})

# %% guess tensor
guess = predict(
    "12.tensor",
    "205.5 MB. How long on an H100's NVLink, on an H800's, on seven xGMI links? And is "
    "the eighth of the work, 0.6 TFLOP, longer or shorter than that on an H800?",
    h100=lesson.number("H100", unit="ms", factor=1.05),
    h800=lesson.number("H800", unit="ms", factor=1.05),
    mi300x=lesson.number("MI300X", unit="ms", factor=1.05),
    work=lesson.choice("longer", "shorter", label="H800: work is"),
)

# %% tensor
sent = 1e6 * crosses["tensor, a layer"]
h100, h800, xgmi = (1e9 * figure.value for figure in of_a_node.values())
rates = {  # bytes/s of a rank, and the peak of its chip in TFLOP/s
    "H100": (h100, peak),
    "H800": (h800, peak),
    "MI300X": (7 * xgmi, CHIPS["MI300X"].peak("fp8")),
}
rows = {
    name: {
        "all-reduces of a layer, ms": 1e3 * sent / rate,
        "work of a layer, ms": 1e3 * flops / 8 / (0.4e12 * tflops),
    }
    for name, (rate, tflops) in rates.items()
}
reduces, of_work = (
    {name: row[column] for name, row in rows.items()} for column in rows["H800"]
)
guess.reveal(
    h100=reduces["H100"],
    h800=reduces["H800"],
    mi300x=reduces["MI300X"],
    work="longer" if of_work["H800"] > reduces["H800"] else "shorter",
    because="205.5 MB over 450, 160 and 336 GB/s; 0.6 TFLOP at 40% of 1,979 TFLOP/s.",
)
lesson.table(rows, first="8-way, forward", note="H800: the H100's peak stands in.")

# %% [markdown] degrees
# With nothing hidden a rank of the H800 would wait 1.7 times as long as it computes, one of the MI300X about as long,
# one of the H100 0.6 times. Pairs could hide it; but V3's pairs already have the experts' exchange to hide.
#
# > **Claim and fact: DeepSeek-V3's degrees are the right ones**
# >
# > - 16-way pipeline, 64-way expert parallelism over 8 nodes, ZeRO-1, on 2,048 H800 in nodes of 8. (source: DeepSeek-V3
# >   report, arXiv 2412.19437, sections 3.1 and 3.2)
# > - Memory was optimised so that training could do without tensor parallelism, which the report calls costly. (source:
# >   DeepSeek-V3 report, section 3.2)
# > - NVIDIA's recipe for the same model recommends TP = 2, PP = 16, EP = 64. (source: [Megatron Bridge's
# >   recipe](https://docs.nvidia.com/nemo/megatron-bridge/0.4.0/apidocs/bridge/bridge.recipes.deepseek.deepseek_v3.html))
# > - Tensor parallelism up to the size of a node, then pipeline across nodes: the rule for dense models. (source:
# >   arXiv 2104.04473, section 3.2, takeaway 1)
#
# So there is no best cut of a model. There is one for a model *on a cluster*, and other people with other links chose
# otherwise. The experts decide much: they hold 97% of V3's parameters, 64-way expert parallelism divides just these,
# and it needs no bubble.
#
# ## 20. The same on MI300X
#
# Nothing here has run on AMD silicon; this is the same arithmetic with another chip's figures. 2,048 MI300X in nodes of
# 8, the network as before. One copy of the weights (DualPipeV or 1F1B).

# %% guess amd
guess = predict(
    "12.amd",
    "One copy. With 4 stages a rank holds how many GB of weights, gradients and "
    "states? How many KB does a token in a layer get, of 80 GB and of 192 GB?",
    held=lesson.number("held, 4 stages", unit="GB", factor=1.1),
    h100=lesson.number("of 80 GB", unit="KB", factor=1.1),
    mi300x=lesson.number("of 192 GB", unit="KB", factor=1.1),
)

# %% amd
rows = {}
for p, chips in ((2, 2048), (4, 2048), (8, 2048), (16, 2048), (4, 1024)):
    one = cut(p, chips=chips)
    held = one["weights, gradients, GB"] + one["optimizer, GB"]
    row = rows[f"{p}, {chips:,} chips"] = {"held, GB": held}
    for name, gb in memory.items():
        kept = 1e6 * (gb - held) / (config.layers * tokens)
        row[f"KB for a token, {name}"] = kept if kept > 0 else "does not fit"
    row["bubble of 1F1B, %"] = one["bubble of 1F1B, %"]
four = rows["4, 2,048 chips"]
guess.reveal(
    held=four["held, GB"],
    h100=four["KB for a token, H100"],
    mi300x=four["KB for a token, MI300X"],
    because="four times the share of 16 stages; what is left over 61 × 4,096.",
)
lesson.table(rows, first="stages")

# %% [markdown] amd read
# With 192 GB two stages leave twice as much for a token as 16 stages and two copies leave with 80 GB. Then 14 of 15
# cuts are gone, and the bubble is 6% in place of 11%: m is still 7.5 p, but p - 1 is only half of p where p is 2. And
# there is freedom: the last row has half as many chips, each pipeline gets twice the micro-batches, and the bubble is
# nearly halved (the step takes nearly twice as long). (Look at 80 GB: 8 stages with one copy hold what 16 stages hold
# with two. That is what DualPipe's second copy costs.) What does not change is the network between nodes. The experts'
# exchange, and with it the wish for pairs, is the same on both.
#
# In the lab 12.choose puts all of it into one model, with links, and with 12 bytes of states in place of 8, as FP32
# moments take. You search the degrees for clusters that nobody here has seen.
#
# ## What you have
#
# - Orders of real ranks: gradients equal to the whole model's, times as simulated, a hang where a checker says so.
# - Stages divide weights. They divide neither activations nor, at a given batch on given chips, the bubble.
# - Degrees follow from memory and links. Both vendors' pipelines are the same calls.
#
# In the lab: 12.choose, and your own orders on four ranks.

# %% [markdown] summary of the unit
# ## Summary
#
# - A cut by layers moves one activation for each micro-batch. The price is idle time: (p - 1) (F + B) for GPipe and
#   1F1B, a v-th of it interleaved.
# - An order is valid if all ranks together can finish it. No rank can see a deadlock alone.
# - Alive is what a forward has left and a backward, or its W, still needs: m micro-batches with GPipe, at most p with
#   1F1B.
# - B = I + W. Only I is waited for. W fills gaps and holds memory meanwhile.
# - F&B runs a forward and a backward of two micro-batches as one, so that exchanges of one hide behind work of the
#   other. DualPipe makes such pairs by feeding from both ends, at the price of a second copy.
# - Formulas assume even stages and no delay. A simulator takes what is there.
# - On given chips with a given batch, more stages divide weights and nothing else.
#
# ## Read next
#
# - [GPipe](https://arxiv.org/abs/1811.06965): micro-batches, and computing again in place of keeping.
# - [Efficient large-scale language model training on GPU clusters](https://arxiv.org/abs/2104.04473): 1F1B,
#   interleaved, and how the three parallelisms combine.
# - [Zero bubble pipeline parallelism](https://arxiv.org/abs/2401.10241): I and W, ZB-H1, ZBV, the optimizer's check.
# - [DeepSeek-V3](https://arxiv.org/abs/2412.19437), section 3.2, and
#   [deepseek-ai/DualPipe](https://github.com/deepseek-ai/DualPipe).
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>p = 8, m = 24, F = 1, B = 2: how long is 1F1B's step?</summary>
#
# (24 + 7) × 3 = 93, of which 21 are idle on each rank.
# </details>
#
# <details><summary>Which rank needs most memory with 1F1B, and which with ZB-H1?</summary>
#
# Rank 0, with p activations. With ZB-H1 all have p.
# </details>
#
# <details><summary>Why can W wait and I not?</summary>
#
# The stage before needs I's result for its own backward. W's result goes to the optimizer, at the end of the step.
# </details>
#
# <details><summary>Each rank does each forward before its backward. Is the order valid?</summary>
#
# That does not follow: two ranks may wait for each other in a circle.
# </details>
#
# <details><summary>What does DualPipe hide, and behind what?</summary>
#
# Dispatch and combine of one micro-batch behind attention and experts of another that goes the other way.
# </details>
#
# <details><summary>You double the stages on the same cluster with the same batch. What gets smaller?</summary>
#
# Weights and gradients of a rank. Not the activations of rank 0, and hardly the bubble.
# </details>
#
# **You have** the schedules of today's large trainings, and a way to judge the next one. Now open
# [lab 12](../labs/12_pipeline_schedules.ipynb).

# %% end of the lesson
lesson.sitting("12", 3)
