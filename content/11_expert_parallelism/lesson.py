# %% [markdown] top
# # 11 Collectives, dispatch, combine
#
# **Afterwards you can** write collectives from messages and say who is to blame when ranks hang; put a price on a
# transfer before you make it, on NVLink, xGMI, InfiniBand and slower links; send tokens to experts on other ranks and
# bring them home, in FP8 out and bf16 back; hide it behind work; find the rank that holds everybody up; and say how
# many GB/s a chip needs for each TFLOP/s.
#
# **You need** units 02 (roofline), 08 (FP8) and 10 (routing, experts). No GPU and no cluster: ranks are processes on
# your machine, started as torchrun starts them. They talk through gloo on a CPU, through NCCL on NVIDIA GPUs, through
# RCCL on AMD ones, by the same code. NCCL and RCCL themselves have not run here.
#
# **Time**: four sittings. Reading (text and code at 200 words a minute) takes about 20, 21, 22 and 13
# minutes, all of it with the predictions about 45, 45, 45 and 30 (a guess). All cells together run in about a minute
# on a quiet CPU. Then lab 11.

# %% imports
import os
import time
from dataclasses import replace

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from gpu_utils import CHIPS, explore, lesson, listing, predict

# %% [markdown] ranks
# # Sitting 1: collectives by hand
#
# ## 1. What a rank is
#
# A model that is larger than one chip, or a batch that one chip is too slow for, is spread over many. The usual way is
# one process for each chip. Such a process is a **rank**, and so is its number: 0 to world size - 1. All ranks run the
# same program; each asks for its number and does its part. They share no memory. What one knows and another needs is a
# **message**.
#
# `torchrun --nproc-per-node=4 train.py` starts four of them. It sets five environment variables that matter:
#
# | variable | what it says |
# |---|---|
# | `WORLD_SIZE` | number of ranks, on all machines together |
# | `RANK` | number of this one, from 0 |
# | `LOCAL_RANK` | its number on this machine: which GPU to take |
# | `MASTER_ADDR`, `MASTER_PORT` | where rank 0 waits, so that the others find each other |
#
# `dist.init_process_group("nccl")` reads them, and the ranks get to know each other. On an AMD GPU it is `"nccl"` too,
# and RCCL answers; on a CPU it is `"gloo"`. What has been started is a **process group**.
#
# Under `torchrun` works an **elastic agent**: one for each machine. It starts the ranks, watches them, and when one
# fails it ends the others and starts all of them again, as often as `--max-restarts` allows (source:
# [torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html)). `lesson.run_ranks(function, 4)` uses the same
# agent for a function of this notebook, with no restarts. It gives back what each rank returned and printed, and how
# many bytes each sent to each other.
#
# Here is a first program. `seen` is a list of this notebook. Each rank appends its number to it.

# %% guess memory
guess = predict(
    "11.memory",
    "Four ranks each append their number to `seen`, a list of the notebook, and return "
    "how long it is then. How long does each rank say it is? And how long is it in the "
    "notebook afterwards?",
    rank=lesson.number("what each rank says"),
    notebook=lesson.number("in the notebook"),
)

# %% memory
seen = []


def hello():
    seen.append(dist.get_rank())
    print("RANK is", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
    return len(seen)


found = lesson.run_ranks(hello, 4)
guess.reveal(
    rank=found.values[0],
    notebook=len(seen),
    because="each rank is a process and has its own copy of everything.",
)
rows = {
    f"rank {rank}": {"returned": value, "printed": printed.strip()}
    for rank, (value, printed) in enumerate(
        zip(found.values, found.output, strict=True)
    )
}
lesson.table(rows, first="")

# %% [markdown] failing ranks
# ## 2. A rank dies, a rank hangs
#
# Four ranks have four times as many ways to fail, and a new one: to wait for each other for ever. In the next cell all
# ranks meet at a *barrier*, where nobody goes on before everybody has come. In the first run rank 2 raises an error on
# its way there. In the second it takes another branch of the program and is busy there for a minute. The agent looks
# several times a second whether a process has ended, and `run_ranks` gets a limit of 4 seconds.

# %% guess failing
guess = predict(
    "11.failing",
    "Ranks 0, 1 and 3 are at the barrier. When does the run end, and which ranks does "
    "the report name, if rank 2 raises? And if it is busy elsewhere?",
    raises=lesson.choice("at once", "after 4 s", label="2 raises: ends"),
    named=lesson.choice("0", "2", "all of them", label="2 raises: named"),
    busy=lesson.choice("at once", "after 4 s", label="2 is busy: ends"),
    blamed=lesson.choice("0", "2", "all of them", label="2 is busy: named"),
)


# %% failing
def meets(how):
    if dist.get_rank() == 2 and how == "raises":
        raise ValueError("no gradient for layer 7")
    if dist.get_rank() == 2 and how == "is busy":
        time.sleep(60)
    dist.barrier()


ends, named, reports = {}, {}, {}
for how in ("raises", "is busy"):
    began = time.perf_counter()
    try:
        lesson.run_ranks(meets, 4, shared={"how": how}, seconds=4)
    except lesson.RankFailed as why:
        ends[how] = "at once" if time.perf_counter() - began < 4 else "after 4 s"
        first = str(why).split(" of 4 ")[0]
        named[how] = first.split()[1] if first.startswith("rank ") else "all of them"
        reports[how] = {"the run ends": ends[how], "what run_ranks says": str(why)}
guess.reveal(
    raises=ends["raises"],
    named=named["raises"],
    busy=ends["is busy"],
    blamed=named["is busy"],
    because="the agent sees a process end; nobody sees which rank the others wait for.",
)
lesson.table(reports, first="rank 2")

# %% [markdown] what the agent does
# A rank that raises ends its process. The agent sees that, names it, and ends the others. In a log of many ranks look
# for the one that failed **first**: the others were innocent, and wait or fail because of it.
#
# A message that does not come has no error, and a rank that hangs looks like one that computes. Only a limit on time
# ends it: here `seconds`, in `torch.distributed` the `timeout` of `init_process_group`. Then all of them are late, and
# with gloo the line at which each one is tells them apart: three at the barrier, and one that is not. With NCCL and
# RCCL a collective is only *launched*, and the host goes on: ask instead which collective each rank has launched last.
#
# ## 3. Five collectives
#
# A **collective** is a call that all ranks of a group make together. Five of them carry nearly all of training. In the
# figure each rank has a tensor of four pieces. Numbers are chosen so that a sum tells who is in it: all pictures are
# drawn from what the ranks returned.


# %% five collectives
def five():
    mine = lesson.marked(dist.get_rank(), pieces=4)
    out = {"at first": mine}
    out["broadcast from 1"] = mine.clone()
    dist.broadcast(out["broadcast from 1"], src=1)
    out["all-reduce"] = mine.clone()
    dist.all_reduce(out["all-reduce"])
    out["all-gather of piece 0"] = torch.empty(4, dtype=torch.int64)
    dist.all_gather_into_tensor(out["all-gather of piece 0"], mine[:1].clone())
    return out


five_of = lesson.run_ranks(five, 4).values
lesson.held_figure({name: [of[name] for of in five_of] for name in five_of[0]})

# %% [markdown] two more
# **Broadcast**: one rank's tensor goes to all. **All-reduce**: everybody gets the sum of all tensors. **All-gather**:
# everybody gets the pieces of all, in the order of ranks. Two are missing:
#
# - **reduce-scatter** sums as an all-reduce does, and leaves piece r of the sum on rank r only;
# - **all-to-all** has on each rank one piece for each rank: piece d goes to rank d, which keeps what it gets in the
#   order of sources.
#
# The choices below are named like the pieces of the figure.

# %% guess pieces
guess = predict(
    "11.pieces",
    "Four ranks, four pieces each. What does rank 2 hold after a reduce-scatter? What "
    "stands in place 3 of rank 1 after an all-to-all?",
    scatter=lesson.choice("C0", "ABCD0", "ABCD2", label="reduce-scatter, rank 2"),
    to_all=lesson.choice("B3", "D1", "ABCD3", label="all-to-all, rank 1, place 3"),
)


# %% pieces
def two():
    mine = lesson.marked(dist.get_rank(), pieces=4)
    scattered, swapped = torch.empty(1, dtype=torch.int64), torch.empty_like(mine)
    dist.reduce_scatter_tensor(scattered, mine.clone())
    dist.all_to_all_single(swapped, mine)
    return {"at first": mine, "reduce-scatter": scattered, "all-to-all": swapped}


two_of = lesson.run_ranks(two, 4).values
guess.reveal(
    scatter=lesson.held(two_of[2]["reduce-scatter"])[0],
    to_all=lesson.held(two_of[1]["all-to-all"])[3],
    because="rank r keeps piece r of the sum; place s: what rank s had for rank 1.",
)
lesson.held_figure({name: [of[name] for of in two_of] for name in two_of[0]})

# %% [markdown] relations
# Two relations are worth knowing. An all-reduce is a reduce-scatter and then an all-gather. An all-to-all is a matrix
# of pieces transposed: it is its own way back, and where tokens go to experts and return (sitting 3), both ways are
# one.
#
# ## 4. A ring, step by step
#
# How does a library do it? The best known way for an all-reduce is a **ring**: rank r sends only to rank r + 1, the
# last one to rank 0. Four ranks, four pieces. Each rank sends one piece in every step. What arrives is added to one's
# own piece, and that sum is what goes on in the next step. After three steps the first half is done: each rank has one
# complete piece. In the second half complete pieces go around, and replace what is there.
#
# Step 1 is given: rank 0 sends its piece 0, rank 1 its piece 1, and so on. With n ranks there are n - 1 steps in a
# half.

# %% guess ring
guess = predict(
    "11.ring",
    "Four ranks in a ring, four pieces of 1 MiB each, so 4 MiB on each rank. Which "
    "piece of rank 0 is complete after the first half? How much does each rank send in "
    "all? And if everybody sends all it has to everybody?",
    piece=lesson.number("complete on rank 0: piece"),
    ring=lesson.number("ring", unit="MiB"),
    all=lesson.number("everything to everybody", unit="MiB"),
)

# %% ring
size = 2**17  # numbers of 8 bytes in a piece
marks = [lesson.marked(rank, pieces=4) for rank in range(4)]
each = [{"x": mark.repeat_interleave(size)} for mark in marks]
found = lesson.run_ranks(lesson.ring_watched, 4, each=each)
steps = [[of[step][::size] for of in found.values] for step in range(7)]  # one of each
complete = [label.startswith("ABCD") for label in lesson.held(steps[3][0])]
guess.reveal(
    piece=complete.index(True),
    ring=sum(found.sent[0]) / 2**20,
    all=3 * each[0]["x"].nbytes / 2**20,
    because="piece 1 starts at rank 1 and comes to rank 0 last; 2 × 3 steps of one "
    "piece; 3 whole tensors.",
)
titles = ["at first", *(f"step {step} of 6" for step in range(1, 7))]
lesson.held_figure(dict(zip(titles, steps, strict=True)))

# %% bytes of the ring
lesson.table(
    {
        f"rank {source} sent": {f"to {to}, MiB": n / 2**20 for to, n in enumerate(row)}
        for source, row in enumerate(found.sent)
    },
    first="counted",
)

# %% [markdown] ring read
# Follow piece 1 through the figure: it starts as B1 on rank 1, is BC1 on rank 2 after one step, BCD1 on rank 3, and
# complete on rank 0 after three. Then it goes around once more.
#
# Every link carries the same at the same time, and no rank is a bottleneck. Each sends 2 (n - 1) pieces of one n-th:
# less than two tensors, for 4 ranks and for 4,000. All together send 2 (n - 1) tensors. Where ranks add, and no switch
# does it for them, less will not do: for each element n - 1 ranks must give theirs away, and n - 1 ranks must be told
# the sum. The price is time: 2 (n - 1) messages one after the other. For a small tensor on many ranks a **tree**
# is faster: it has about 2 log2 n of them. Sitting 2 puts numbers on that.
#
# In the lab you write this ring, for any number of elements. One thing the figure does not show: which of its two calls
# a rank makes first, the send or the receive. That matters.
#
# ## 5. The deadlock
#
# `dist.send` is *blocking*: it returns when its tensor may be used again. When that is, depends on the backend.
# Suppose every rank first sends to its neighbour on the right and then receives from the left. Somebody who knows MPI,
# the older library for messages, will say: a small one goes out at once, into a buffer, and a large one waits for the
# receiver. Here is 1 number, and 1 million.

# %% guess deadlock
guess = predict(
    "11.deadlock",
    "Three ranks in a ring; each calls send, then recv. Backend gloo. Which come back?",
    small=lesson.choice("comes back", "hangs", label="4 bytes"),
    large=lesson.choice("comes back", "hangs", label="4 MB"),
    begun=lesson.choice("comes back", "hangs", label="4 MB, with isend"),
)


# %% deadlock
def around(x, first):
    right, left = (dist.get_rank() + 1) % 3, (dist.get_rank() - 1) % 3
    got = torch.empty_like(x)
    if first == "send":
        dist.send(x, right)
        dist.recv(got, left)
    else:
        work = dist.isend(x, right)  # begins, and returns at once
        dist.recv(got, left)
        work.wait()
    return got.sum()


trials = {
    "4 bytes": (1, "send"),
    "4 MB": (10**6, "send"),
    "4 MB, with isend": (10**6, "isend"),
}
fate, said = {}, {}
for name, (count, first) in trials.items():
    try:
        shared = {"x": torch.ones(count), "first": first}
        lesson.run_ranks(around, 3, shared=shared, seconds=3)
        fate[name], said[name] = "comes back", "3 results"
    except lesson.RankFailed as why:
        fate[name], said[name] = "hangs", str(why)
guess.reveal(
    small=fate["4 bytes"],
    large=fate["4 MB"],
    begun=fate["4 MB, with isend"],
    because="gloo's send waits for the receiver's recv, whatever the size.",
)
lesson.table({name: {"": fate[name], "report": said[name]} for name in fate}, first="")

# %% [markdown] deadlock elsewhere
# Gloo's send waits for the matching receive, at any size: it is the honest kind. Buffers of MPI's kind are worse, as
# the bug waits for a larger model. With `isend` the send is under way while the rank receives; `work.wait()` comes
# before the tensor is used again. `dist.batch_isend_irecv` takes a list of both, and is what NCCL and RCCL want:
#
# > **Facts: sends on a GPU**
# >
# > - In NCCL, sends and receives that must progress together belong into one group (`ncclGroupStart`, `ncclGroupEnd`),
# >   or they may deadlock. (source: [NCCL user guide, point-to-point
# >   communication](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html))
# > - Collectives with another count or dtype on one of the ranks are undefined: hangs, crashes, wrong data. (source:
# >   [NCCL user guide, collective
# >   operations](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html))
#
# ## 6. The order of a sum
#
# Float addition is not associative. In a ring, piece 1 is summed as ((b + c) + d) + a, piece 2 as ((c + d) + a) + b.
# You could also sum a + b + c + d in the order of ranks, on one machine. Take 100,000 numbers from a bell curve on each
# of four ranks.

# %% guess order
guess = predict(
    "11.order",
    "Are the results of the ring the same bits on all four ranks? How many "
    "in 100 sums differ from those in the order of ranks? And is gloo's own "
    "all-reduce the same bits as our ring?",
    ranks=lesson.yes_no("same bits on all ranks"),
    differ=lesson.choice("about 0.1", "about 3", "about 30", label="differ, in 100"),
    gloo=lesson.yes_no("the same as gloo's"),
)


# %% order
def both(x):
    ours, theirs = lesson.ring_watched(x)[-1], x.clone()  # after the last step
    dist.all_reduce(theirs)
    return {"ring": ours, "gloo": theirs}


torch.manual_seed(0)
parts = torch.randn(4, 100_000)
sums = lesson.run_ranks(both, 4, each=[{"x": part} for part in parts]).values
in_order = parts[0] + parts[1] + parts[2] + parts[3]
ring, exact = sums[0]["ring"], parts.double().sum(0)
bound = 3 * 2.0**-24 * parts.double().abs().sum(0)  # of 3 additions
share = (ring != in_order).double().mean()
guess.reveal(
    ranks=all(torch.equal(of["ring"], ring) for of in sums),
    differ=lesson.nearest(100 * share, ["about 0.1", "about 3", "about 30"]),
    gloo=torch.equal(sums[0]["gloo"], ring),
    because="one rank finishes a piece and the others copy it; three roundings in "
    "another order end elsewhere.",
)
rows = {
    name: {
        "differ from the order of ranks, %": 100 * (x != in_order).double().mean(),
        "largest error": (x - exact).abs().max(),
        "beyond the bound": int(((x - exact).abs() > bound).sum()),
    }
    for name, x in {"order of ranks": in_order, **sums[0]}.items()
}
lesson.table(rows, first="sum of four")

# %% [markdown] order explained
# All of them are right, and they differ. The bound is a rounding error of at most $2^{-24}$ of a partial sum for each
# of three additions, and no partial sum is larger than $\sum |x|$. Three things follow. A run is the same as yesterday
# only if the algorithm, the number of ranks and the place of each rank in the ring are the same. A reference for an
# all-reduce needs a tolerance. And **between ranks** there is no tolerance: if each rank added in its own order,
# weights would drift apart.
#
# ## 7. One name, three libraries
#
# `dist.all_reduce` on an NVIDIA GPU calls NCCL, on an AMD GPU RCCL, on Huawei's Ascend HCCL. The names of collectives
# are the same. RCCL began as NCCL's source, and its environment variables keep the name. What is done under a name
# differs:
#
# | | NCCL (NVIDIA) | RCCL (AMD) | HCCL (Huawei) |
# |---|---|---|---|
# | algorithms | ring, tree, PAT | ring, tree, direct all-gather | ring, mesh, halving and doubling |
# | added by a switch | in a node (NVLS), in the network (CollNet) | no such entry | no such entry |
# | choose by hand | `NCCL_ALGO`, `NCCL_PROTO` | these; `RCCL_OVERRIDE_ALGO` | `HCCL_ALGO`, between servers only |
# | protocols | LL, LL128, Simple | LL, LL128, Simple | not named so |
# | who chooses | cost tables, or a plugin | the same, tables for each chip | by product, size, servers |
#
# **Which algorithm?** Ring and tree are those of section 4. *Direct*, or *mesh*: each rank talks to all others at once.
# *Halving and doubling*: partners swap half of the tensor, then a quarter, and so on, and go the same way back. *PAT*
# makes few messages of an all-gather or a reduce-scatter. The library decides at each call, from the size, the number
# of ranks and the topology. Small tensors want few messages (tree, halving), large ones want few bytes (ring); a full
# mesh of links, as in a node of eight MI300X, wants all links at once. Variables are for tests: what you force today is
# wrong after the next update.
#
# **Which protocol?** How do the GPUs tell each other that data has come? *Simple* writes data, then a flag, with a
# fence between: full bandwidth, slow to start. *LL* (low latency) puts a 4-byte flag beside every 4 bytes of data: no
# fence, half the bandwidth. *LL128* spends 8 bytes of each 128: 120 are data, 94%. It needs stores of 128 bytes that
# arrive whole. Whether they do is a matter of the chip and the links, so the library decides that, too.
#
# > **Facts: NCCL, RCCL, HCCL**
# >
# > - NCCL: unset, `NCCL_ALGO` leaves the choice to topology and architecture. With NVLS the NVSwitch adds, from NVLink
# >   4 and Hopper on. (source: [NCCL environment
# >   variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html))
# > - NCCL: CollNet has switches of the network add, by SHARP. (source: [NCCL-RDMA-SHARP
# >   plugins](https://docs.nvidia.com/networking/display/hpcxv226/NCCL-RDMA-SHARP-Plugins))
# > - PAT, parallel aggregated trees, takes a logarithmic number of transfers for small sizes. (source: [arXiv
# >   2506.20252](https://arxiv.org/abs/2506.20252))
# > - LL: 4 bytes of flag for 4 of data. LL128: lines of 128 bytes with one word of 8 for the flag. (source:
# >   NVIDIA/nccl, src/include/device.h, `ncclLLFifoLine`, `NCCL_LL128_DATAELEMS`)
# > - RCCL: ring and tree. (source: [What is
# >   RCCL?](https://rocm.docs.amd.com/projects/rccl/en/latest/what-is-rccl.html)) `NCCL_ALGO` and `NCCL_PROTO` keep
# >   their names. (source: [RCCL environment
# >   variables](https://rocm.docs.amd.com/projects/rccl/en/latest/api-reference/env-variables.html))
# > - RCCL: with fewer than 8 of a node's MI300X, a collective reaches only a part of the bandwidth, since each pair has
# >   its own link. (source: [RCCL usage
# >   tips](https://rocm.docs.amd.com/projects/rccl/en/docs-7.0.2/how-to/rccl-usage-tips.html))
# > - HCCL: inside of a server the hardware decides, not the user; between servers ring, halving and doubling, and
# >   others. (source: [HCCL
# >   algorithms](https://www.hiascend.com/document/detail/en/canncommercial/800/hcclug/hcclug/hcclug_000006.html))
#
# <details><summary>Versions and variables, for who has to choose by hand</summary>
#
# > **Facts: choosing by hand**
# >
# > - NCCL: `NCCL_ALGO` takes Ring, Tree, CollnetChain, CollnetDirect, NVLS (since 2.17), NVLSTree (since 2.18), PAT
# >   (since 2.23). LL128 where it is not supported can corrupt data. (source: NCCL environment variables)
# > - RCCL 2.26.6: a direct all-gather on up to 16 nodes, for messages up to 4 MB; `RCCL_OVERRIDE_ALGO` and
# >   `RCCL_OVERRIDE_PROTO` force a choice, where `NCCL_ALGO` and `NCCL_PROTO` may not. (source: ROCm/rccl,
# >   CHANGELOG.md)
# > - RCCL: LL128 came to `gfx942` with 2.22.3 for ROCm 6.4.2 and to `gfx950` with 2.26.6 for ROCm 7.0.0. (source:
# >   ROCm/rccl, CHANGELOG.md)
# > - RCCL: MSCCL, collectives written down as schedules, is on by default on MI300X in ROCm 7.0.2. (source: RCCL usage
# >   tips) ROCm 7.13 has removed it. (source: [RCCL usage
# >   tips](https://rocm.docs.amd.com/projects/rccl/en/7.13.0-preview/how-to/rccl-usage-tips.html))
# > - HCCL: `HCCL_ALGO="level0:NA;level1:ring"`: level 0, inside of a server, can only be NA; setting it switches the
# >   adaptive choice off. Among the others for level 1: NHR, a ring in levels, with a logarithmic number of steps.
# >   (source: [HCCL_ALGO](https://www.hiascend.com/document/detail/en/canncommercial/800/apiref/envvar/envref_07_0079.html))
#
# </details>
#
# None of the three has run here: what the table says is theirs. What you have run is what they have in common.
#
# ## 8. Who moves the bytes
#
# On a CPU a thread of gloo moves them. On a GPU there are three ways, and two of them leave the compute units alone:
#
# - **Units move them.** A kernel of the library loads here and stores there, or adds on the way. It takes SMs or CUs
#   from the matrix products that it should hide behind. That is the usual way; an all-reduce needs someone who adds.
# - **A copy engine moves them** (DMA; SDMA on AMD). It copies, and cannot add: all-gather and all-to-all, no
#   reduce-scatter.
# - **The network does.** A network card reads the GPU's memory itself (RDMA). A switch that can add sums on the way
#   (NVLS, SHARP).
#
# So no unit is needed where nothing is added. Before you read on:

# %% guess engines
guess = predict(
    "11.engines",
    "Which of the four can a copy engine do alone?",
    gather=lesson.yes_no("all-gather"),
    to_all=lesson.yes_no("all-to-all"),
    scatter=lesson.yes_no("reduce-scatter"),
    reduce=lesson.yes_no("all-reduce"),
)

# %% engines
plain = {}
for by_rank in (five_of, two_of):
    for name in by_rank[0]:
        labels = [label for of in by_rank for label in lesson.held(of[name])]
        plain[name.split(" of ")[0]] = all(len(label) == 2 for label in labels)
guess.reveal(
    gather=plain["all-gather"],
    to_all=plain["all-to-all"],
    scatter=plain["reduce-scatter"],
    reduce=plain["all-reduce"],
    because="a copy engine copies: one letter in the figures; a sum has several.",
)

# %% [markdown] zero units
# > **Facts: copy engines in use**
# >
# > - NCCL: copy engines for AlltoAll, AllGather, Scatter and Gather over NVLink since 2.28, with
# >   `NCCL_CTA_POLICY_ZERO`; across the network AlltoAll and AllGather since 2.30.6. (source: [NCCL user guide, buffer
# >   registration](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/bufferreg.html))
# > - RCCL: `NCCL_CTA_POLICY=2` puts the AllGather on SDMA engines, tested on MI355X; ReduceScatter stays on kernels.
# >   (source: [RCCL SDMA
# >   AllGather](https://rocm.docs.amd.com/projects/primus/en/main/04-technical-guides/rccl-sdma-torchtitan.html))
#
# Both vendors go the same way: what is copied leaves the units, sums stay or go into the switch. How many units a real
# transfer takes is section 29.
#
# **You have** ranks, their failures, five collectives to the element, a ring with counted bytes, and the deadlock. In
# the lab: 11.ring_all_reduce, 11.hierarchical, 11.all_to_all_two_hop. Next: what a message costs on each link.

# %% first sitting ends
lesson.sitting("11", 1)

# %% [markdown] two numbers
# # Sitting 2: what a transfer costs
#
# ## 9. Alpha and beta: a message on this machine
#
# A message takes some time before its first byte counts: a call, a handshake, a wake-up. Call that time *alpha*. Then
# bytes flow, at a *bandwidth*; its inverse, seconds a byte, is called *beta*. So a message of n bytes takes
#
# $$ t(n) = \alpha + n / \text{bandwidth}. $$
#
# Is that so? Two ranks play ping-pong with messages of 1 KiB to 16 MiB over gloo, 40 times each. Half of a round trip
# counts as one message. On a machine that does other things as well most times are too long, so take the *quiet* time:
# one message in ten is faster. Here are both ends of the measurement.


# %% ping-pong
def ping_pong(sizes: list, repeats: int) -> dict:
    other, found = 1 - dist.get_rank(), {size: [] for size in sizes}
    for _ in range(repeats):
        for size in sizes:  # in turn, so that a busy moment hits all sizes alike
            message = torch.zeros(size, dtype=torch.uint8)
            start = time.perf_counter()
            if other == 1:
                dist.send(message, other)
                dist.recv(message, other)
            else:
                dist.recv(message, other)
                dist.send(message, other)
            found[size].append((time.perf_counter() - start) / 2)
    return found


sizes = [2**power for power in range(10, 25, 2)]
given = {"sizes": sizes, "repeats": 40}
measured = lesson.run_ranks(ping_pong, 2, shared=given, seconds=60.0).values[0]
tenths = torch.tensor([0.1, 0.5, 0.9])
spread = {n: torch.tensor(times).quantile(tenths) for n, times in measured.items()}
ends = (sizes[0], sizes[-1])
lesson.table(
    {f"{n // 1024:,} KiB": {"quiet, µs": 1e6 * spread[n][0]} for n in ends},
    first="message",
)

# %% guess message
guess = predict(
    "11.message",
    "Both ends are given. By the line: how long does a message of 1 MiB take? And "
    "which term makes up most of the time of 1 KiB?",
    middle=lesson.number("1 MiB", unit="µs", factor=3),
    small=lesson.choice("alpha", "bytes", label="1 KiB"),
)

# %% message
quiet = [spread[n][0].item() for n in sizes]
alpha, bandwidth = lesson.fit_line(sizes, quiet)
guess.reveal(
    middle=1e6 * spread[2**20][0],
    small="alpha" if alpha > 2**10 / bandwidth else "bytes",
    because="1 KiB has hardly any bytes: its time is alpha. 16 MiB is 16 times 1 MiB "
    "and has hardly any alpha. So: the first, and a sixteenth of the second.",
)
lesson.table(
    {
        f"{n // 1024:,} KiB": {
            "quiet, µs": 1e6 * spread[n][0],
            "line, µs": 1e6 * (alpha + n / bandwidth),
            "median, µs": 1e6 * spread[n][1],
            "90%, µs": 1e6 * spread[n][2],
        }
        for n in sizes
    },
    first="message",
    note=f"alpha {1e6 * alpha:,.0f} µs, bandwidth {bandwidth / 1e9:.2f} GB/s",
)

# %% [markdown] what the line is worth
# A line with two numbers, over four decades. It is not exact: look how far its column is from the quiet times, and how
# far medians and 90% are from those. Processes that share cores wait for each other, so a second run gives other
# numbers. What stays is the shape: flat, then straight. The bend is at alpha times bandwidth bytes. Below it, messages
# are free to grow.
#
# A quiet network shows it better. AMD's mori prints the times in which one MI300X reads 128 messages at once over a
# card of 400 Gb/s, from 8 bytes to 1 MiB each (source: ROCm/mori README). Over five decades a line with two numbers is
# within 8% of all of them:

# %% published reads
reads = lesson.PUBLISHED_READS  # bytes of a message: microseconds of 128 of them
alpha, bandwidth = lesson.fit_line(
    [128 * n for n in reads], [t / 1e6 for t in reads.values()]
)
line = {n: 1e6 * (alpha + 128 * n / bandwidth) for n in reads}
lesson.table(
    {
        f"{n:,} bytes": {
            "measured, µs": reads[n],
            "line, µs": line[n],
            "off, %": 100 * (line[n] / reads[n] - 1),
        }
        for n in [*list(reads)[::3], 2**20]
    },
    first="128 messages of",
    note=f"alpha {1e6 * alpha:.1f} µs, bandwidth {bandwidth / 1e9:.1f} GB/s; at most "
    f"{max(abs(100 * (line[n] / reads[n] - 1)) for n in reads):.0f}% off",
)

# %% [markdown] directions and ports
# ## 10. Links: what a data sheet says, and in which direction
#
# Everything that follows is this line, with other numbers. NVLink (NVIDIA) and xGMI (AMD) join the GPUs of a node;
# InfiniBand, and RoCE over Ethernet, join nodes. Two habits of data sheets get in the way.
#
# - **Directions.** NVIDIA adds both directions of NVLink: a GPU sends half of the figure, and gets the other half at
#   the same time. Networks are named by one direction, and in bits: 400 Gb/s are 50 GB/s.
# - **Port or pair.** Behind an NVLink switch a GPU has one *port*: all of its bandwidth can go to one peer. An MI300X
#   has seven xGMI links, one to each *pair*; to one peer it has one of them.

# %% table of links
shown = (
    "NVLink 4",
    "NVLink 4 of H800",
    "xGMI of MI300X",
    "InfiniBand NDR",
    "RoCE 400G",
    "Ascend 910C",
)
links = {name: lesson.LINKS[name] for name in shown}
lesson.table(
    {
        name: {
            "of a": link.each,
            "peak, one way": link.gb,
            "usable, GB/s": link.usable_gb.value or "unknown",
            "alpha, µs": link.alpha_us.value or "unknown",
        }
        for name, link in links.items()
    },
    first="link",
    note="alpha: a step of a ring in the tables by which NCCL and RCCL choose.",
)

# %% [markdown] about alpha
# Alpha here is not the time of a signal on a wire. It is what a library *assumes* for a step: NVIDIA's NCCL 3.4 µs over
# NVLink and 9.6 over a network, AMD's RCCL 2.7 over xGMI and 4.5 over a network (source: `hwLat` in
# `src/graph/tuning.cc` of both, versions of before H100 and MI300X). Where nobody says, it is unknown, and this course
# computes nothing from it.
#
# ## 11. A mesh against a switch
#
# Eight GPUs add up 16 MiB each. In a **ring** each rank sends an eighth to its neighbour, 14 times. **Direct** exchange
# takes two steps: everybody sends an eighth to everybody, and again. Each rank sends as many bytes in both. What
# differs is over which cables.

# %% guess mesh
guess = predict(
    "11.mesh",
    "Only the time for bytes, without alpha. How many times as long does the ring take"
    " as direct exchange?",
    switch=lesson.number("H100, one port into a switch", unit="times", factor=1.05),
    mesh=lesson.number("MI300X, a link for each pair", unit="times", factor=1.05),
)

# %% mesh
rows = {}
for name in ("8 H100, NVLink switch", "8 MI300X, xGMI mesh"):
    network = lesson.TOPOLOGIES[name]()
    found = lesson.collective_schedules("all-reduce", network.nodes)
    for algorithm in ("ring", "direct"):
        starts, flow = network.terms(found[algorithm].transfers(2**24))
        rows[f"{name}: {algorithm}"] = {
            "bytes, µs": 1e6 * flow,
            "alpha, µs": 1e6 * starts,
        }
ring, direct, mesh_ring, mesh_direct = (row["bytes, µs"] for row in rows.values())
guess.reveal(
    switch=ring / direct,
    mesh=mesh_ring / mesh_direct,
    because="a ring sends over one link at a time. Behind a switch that is the whole "
    "port; in the mesh it is one cable of seven.",
)
lesson.table(rows, first="16 MiB")

# %% [markdown] what libraries do
# So a mesh wants direct exchange, or several rings at once, each over other cables. All-to-all, the traffic of
# experts, *is* direct: on a mesh every pair has its own cable for it, and the seven links together have about three
# quarters of an H100's port (times here use the usable bandwidth of a link where one is known, and else the peak,
# which flatters the H100). But no cable can help another: if all tokens want one expert, the way to it is one cable
# wide. (With one alpha for seven messages the model flatters direct exchange. How much, the published tables below
# show.)
#
# ## 12. A schedule that delivers
#
# A *schedule* is a list of steps; a step is a list of transfers that begin together. Before timing one, ask whether it
# is right. No numbers are needed: follow each rank's contribution to each piece (the table says chunk) through the
# steps.

# %% broken ring
ring = lesson.collective_schedules("all-reduce", [0] * 4)["ring"]
short = replace(ring, steps=ring.steps[:-1])
twice = replace(ring, steps=(ring.steps[0], *ring.steps))
lesson.table(
    {
        "ring of 4": f"{len(lesson.delivery_faults(ring))} faults",
        "its last step left out": lesson.delivery_faults(short)[0],
        "its first step done twice": lesson.delivery_faults(twice)[0],
    },
    first="schedule",
)

# %% [markdown] a shared link
# A wrong schedule with small random data may pass a test with a loose tolerance. Symbols forgive nothing.
#
# ## 13. Contention: a link that is shared
#
# Transfers of one step that cross the same link share it: their bytes add up, and the link is busy for alpha + all
# bytes / bandwidth. A step is over when its slowest link is. That is the whole model.
#
# Two nodes of 8 ranks do an all-to-all of 16 MiB a rank: one step, 240 transfers. Inside a node they have the NVLink
# of an H800, between nodes InfiniBand cards (their bandwidths are in the table of links): eight, one for each GPU, or
# one for the whole node.

# %% guess uplink
guess = predict(
    "11.uplink",
    "A rank has 1 MiB for each of the 16 ranks. How long do the bytes take (without "
    "alpha) with eight cards, and how many times as long with one?",
    eight=lesson.number("eight cards", unit="µs", factor=1.1),
    one=lesson.number("one card", unit="times as long", factor=1.05),
)

# %% uplink
fast, slow = lesson.wire_of("NVLink 4 of H800"), lesson.wire_of("InfiniBand NDR")
rows = {}
for cards in (8, 4, 1):
    network = lesson.node_network(2, 8, fast, slow, cards=cards)
    for name, one in lesson.collective_schedules("all-to-all", network.nodes).items():
        steps = one.transfers(2**24)
        costs = [network.cost(step) for step in steps]
        rows[f"{cards} cards, {name}"] = {
            "steps": len(steps),
            "alpha, µs": 1e6 * sum(cost.alpha for cost in costs),
            "bytes, µs": 1e6 * sum(cost.transfer for cost in costs),
            "one of the busiest links": ", ".join(
                dict.fromkeys(cost.busiest for cost in costs[:2])
            ),
        }
eight, single = (rows[f"{cards} cards, direct"]["bytes, µs"] for cards in (8, 1))
guess.reveal(
    eight=eight,
    one=single / eight,
    because="8 of the 16 MiB leave the node: 8 MiB over 50 GB/s. One card carries the "
    "bytes of eight ranks.",
)
lesson.table(rows, first="all-to-all")

# %% [markdown] rounds and hops
# (`0 net out` is the way out through the card of rank 0, `0 out` the way to its switch; others are as busy.)
#
# *Rounds* send to one rank at a time. In each of 15 steps somebody crosses, and all others wait for the card: 15 times
# 1 MiB over 50 GB/s. *Two-hop* goes across first and forwards inside afterwards. It takes longer here, since every
# block is as large as before. It pays where one copy across can serve several ranks. That is what tokens do, below.
#
# Look around. Step through a schedule, change network and size, and watch which links are the busiest.

# %% explore network
explore("network", topology="2 nodes of 8 H800, InfiniBand", algorithm="hierarchical")

# %% [markdown] ring or tree
# ## 14. Ring or tree?
#
# A **tree** adds up in pairs, then pairs of pairs, and hands the sum down the same way: $2 \log_2 n$ steps, the whole
# message in each. A ring has $2(n-1)$ steps with an n-th of the message each. So a tree wins where alpha decides, and a
# ring where bytes do. In between both take equally long. For 8 ranks on NVLink, with 3.4 µs and
# 450 GB/s (source: NVIDIA/nccl src/graph/tuning.cc, glennklockwood.com/garden/processors/h100):
#
# | | steps | share of the message that a port carries |
# |---|---|---|
# | ring | 14 | 14/8 |
# | tree | 6 | 6 |

# %% guess crossing
guess = predict(
    "11.crossing",
    "Up to which size is the tree faster? And if alpha doubles?",
    size=lesson.number("8 ranks on NVLink", unit="MB", factor=1.1),
    double=lesson.choice(
        "half that size", "the same", "twice that size", label="alpha doubled"
    ),
)


# %% crossing
def crossing(n, alpha, bandwidth):
    forms = [lesson.COLLECTIVE_FORMS["all-reduce", name] for name in ("ring", "tree")]
    steps, shares = (
        [getattr(one, part)(n) for one in forms] for part in ("steps", "share")
    )
    return (steps[0] - steps[1]) * alpha * bandwidth / (shares[1] - shares[0])


rows = {}
for name in ("NVLink 4", "xGMI of MI300X", "InfiniBand NDR"):
    link = lesson.LINKS[name]
    rows[name] = {
        f"{n} ranks, MB": crossing(n, link.alpha, link.bandwidth) / 1e6
        for n in (8, 64, 1024)
    }
once = crossing(8, 3.4e-6, 450e9)
guess.reveal(
    size=once / 1e6,
    double={0.5: "half that size", 1: "the same", 2: "twice that size"}[
        round(crossing(8, 6.8e-6, 450e9) / once, 1)
    ],
    because="8 alphas more against 6 - 14/8 = 4.25 messages more: 8 × 3.4 µs × 450 "
    "GB/s / 4.25.",
)
lesson.table(rows, first="tree faster up to")

# %% [markdown] choosing
# (The tree is not pipelined here. NCCL's is: cut into pieces, a tree carries two messages, however many ranks there
# are. Source: `src/graph/tuning.cc`.) *Halving and doubling* needs $2 \log_2 n$ steps and a ring's bytes, for powers
# of two: in this model it beats both. It swaps with partners far away, though, so it meets shared links that a ring
# avoids.
#
# ## 15. Published tables
#
# Does such a line fit real kernels? To *dispatch* is to send tokens to the ranks of their experts, to *combine* to
# bring the results back (sitting 3); EP8 means that the experts are spread over 8 ranks; *low-latency* kernels are
# made for few tokens.
#
# DeepEP (H800, NVLink in a node, InfiniBand across) and mori (MI300X) print times of their
# low-latency dispatch and combine: 128 tokens a rank, 7,168 numbers each, 8 of 256 experts, FP8 there and BF16 back.
#
# On paper: the bytes of a rank that leave the node, over 50 GB/s; within a node, those that leave the GPU. For 64
# ranks that is 7/8 of 128 × 8 × 7,168 bytes, or 128 µs, with alpha left out. Back it is twice that.

# %% guess constant
guess = predict(
    "11.constant",
    "DeepEP's dispatch for 16 to 256 ranks: measured 118 to 194 µs, on paper 73 to "
    "142. What is measured minus paper, over these sizes?",
    rest=lesson.choice("about constant", "grows as the bytes", label="the rest"),
)

# %% published
rows = lesson.published_beside_paper()
rest = [rows[f"DeepEP, EP{n}"]["more"] for n in (16, 32, 64, 128, 256)]
paper = [rows[f"DeepEP, EP{n}"]["on paper"] for n in (16, 256)]
grows = max(rest) / min(rest) > (paper[1] / paper[0]) ** 0.5
guess.reveal(
    rest="grows as the bytes" if grows else "about constant",
    because="45 to 54 µs, while the bytes double: an alpha, of the whole kernel.",
)
lesson.table(
    rows,
    first="128 tokens a rank",
    note="Measured: deepseek-ai/DeepEP docs/legacy.md; ROCm/mori README.md.",
)

# %% [markdown] what published tables hide
# Both vendors' kernels are a line: bytes over bandwidth plus 37 to 54 µs for DeepEP's dispatch, 22 µs for mori's. The
# way back fits worse: 34 to 94 µs, growing up to 128 ranks. It waits for the last of all ranks, and it adds; this
# table cannot tell which. What the table hides: mori sends a token once to a *rank* with two of its experts, DeepEP's
# low-latency kernels once for each expert; the model counts each its own way. And mori's rows across nodes are left
# out, because those kernels forward in two hops.
#
# Bandwidths in such tables need care, too. DeepEP's table of large batches says 58 GB/s for 32 ranks over a card of 50:
# bytes that never left the node are counted. (V2's README says so of its own table.)
#
# ## 16. At most M nodes
#
# 256 experts stand on 8 nodes of 8 GPUs, and each token has 8 of them. A token goes once to each node with one of its
# experts, and is forwarded inside. If the router chose freely:

# %% guess nodes
guess = predict(
    "11.nodes",
    "Eight different experts of 256, drawn evenly. A node has 32. On how many of the 8"
    " nodes are they, on average? (A node is missed by all eight with about (7/8)⁸.) "
    "With at most M = 4 nodes, how many experts are in each?",
    free=lesson.number("nodes, free choice", factor=1.05),
    each=lesson.number("experts in a node, M = 4"),
)

# %% nodes
torch.manual_seed(0)
scores = torch.rand(4096, 8, 32)  # token, node, expert of it
rows = {}
for limit in (8, 4, 2):
    best = scores.topk(8 // limit, dim=2).values.sum(2)  # what a node has to offer
    allowed = torch.zeros(4096, 8, dtype=torch.bool)
    allowed.scatter_(1, best.topk(limit, dim=1).indices, True)
    masked = torch.where(allowed[:, :, None], scores, -1.0).flatten(1)
    chosen = masked.topk(8, dim=1).indices // 32
    used = torch.zeros(4096, 8).scatter_(1, chosen, 1.0).sum(1).mean()
    rows[f"M = {limit}"] = {"nodes of a token": used, "experts a node": 8 / used}
guess.reveal(
    free=rows["M = 8"]["nodes of a token"],
    each=round((8 / rows["M = 4"]["nodes of a token"]).item()),
    because="8 × (1 - (7/8)⁸) is 5.25, and a little more, as none is "
    "drawn twice; 8 / 4.",
)
lesson.table(rows, first="4,096 tokens, 8 experts each")

# %% [markdown] three point two
# Without a limit more than five nodes, with it four: a quarter off the network's load. The report's argument is about
# the other link. NVLink, at 160 GB/s, forwards 3.2 copies in the time in which the network, at 50, brings one. So up
# to 3.2 experts a node cost nothing more, and four nodes could serve 13 experts (source: DeepSeek-V3 report,
# [arXiv 2412.19437](https://arxiv.org/abs/2412.19437), section 3.2.2). Which M hides behind which work, you count
# in the lab from routing tables: 11.node_limited.
#
# ## 17. Two deployments, recomputed
#
# > **Facts: DeepSeek-V3 in service**
# >
# > - Prefill: 4 nodes with 32 GPUs, EP32; 8 experts a GPU and one redundant one. (source: arXiv 2412.19437,
# >   section 3.4.1)
# > - Decode: 40 nodes with 320 GPUs, EP320; one expert a GPU; 64 GPUs hold redundant and shared experts; the shared
# >   expert counts as a ninth routed one; transfers go straight over InfiniBand. (source: arXiv 2412.19437, section
# >   3.4.2)
#
# *Insights into DeepSeek-V3* ([arXiv 2505.09343](https://arxiv.org/abs/2505.09343)) bounds decoding by the network
# alone: 32 tokens a GPU, nine copies of each, about 7,000 numbers, a byte there and two back, over 50 GB/s. In each of
# 61 layers this comes twice, because two halves of the batch take turns.

# %% guess decode
guess = predict(
    "11.decode",
    "32 × 9 × 7,000 numbers, 1 + 2 bytes each. How long over 50 GB/s? How long is a "
    "token, with 61 layers and twice that in each? And over 900 GB/s?",
    layer=lesson.number("32 tokens, one layer", unit="µs", factor=1.02),
    token=lesson.number("a token", unit="ms", factor=1.02),
    fast=lesson.number("a token at 900 GB/s", unit="ms", factor=1.03),
)

# %% decode
rows = {}
for gb, numbers in ((50, 7000), (900, 7000), (50, 7168)):
    both = 32 * 9 * numbers * (1 + 2) / (gb * 1e9)
    token = 2 * 61 * both
    rows[f"{gb} GB/s, {numbers:,} numbers"] = {
        **{"there and back, µs": 1e6 * both, "a token, ms": 1e3 * token},
        "tokens a second": 1 / token,
    }
guess.reveal(
    layer=rows["50 GB/s, 7,000 numbers"]["there and back, µs"],
    token=rows["50 GB/s, 7,000 numbers"]["a token, ms"],
    fast=rows["900 GB/s, 7,000 numbers"]["a token, ms"],
    because="6,048,000 bytes / 50e9; times 122; and an 18th of it.",
)
lesson.table(rows, first="decode")

# %% [markdown] what the bound leaves out
# 120.96 µs, 14.76 ms and 67 tokens a second; 6.72 µs and 0.82 ms at 900 GB/s: the paper's figures. It is a bound, and a
# flattering one. Its width is rounded down (7,168 numbers make 123.9 µs), its alpha is zero, its compute is free. Put
# in the alpha that DeepEP's table has just shown, some 50 µs each way, and the bound nearly doubles. At 900 GB/s alpha
# would be nearly everything: a link 18 times as fast does not make tokens 18 times as fast.
#
# Prefill reads the prompt, decode makes one token at a time: prefill is the other end. With thousands of tokens a GPU
# the messages are large: alpha hardly counts, and what counts is hiding bytes behind work. Its traffic over 4 nodes
# you recompute in the lab, from routing tables.
#
# ## 18. Hiding: GB/s for each TFLOP/s
#
# A pair of a token and an expert costs work and traffic. If the work takes longer, the traffic can hide behind it.
# Whether it does depends on the chip's *balance*, peak over bandwidth, and on the width of an expert.
#
# > **Facts: a design rule**
# >
# > - Communication can be hidden completely while peak compute over bandwidth is at most 6,144 FLOP a byte, for experts
# >   3,072 wide, FP8 there and BF16 back: 1 GB/s hides 6.1 TFLOP/s. Tried on NVIDIA GPUs and Ascend NPUs, 1.50 to 1.73
# >   times as fast as without overlap. (source: DeepSeek-V4 report, section 3.1, read in a public translation)

# %% balance of chips
rows = {}
for name in ("H100", "H20", "B200", "MI300X"):
    one_way = CHIPS[name].link_gb.value
    one_way = (
        7 * lesson.LINKS["xGMI of MI300X"].gb.value if one_way is None else one_way / 2
    )
    peak = CHIPS[name].peak("fp8")
    rows[name] = {
        **{"FP8, TFLOP/s": peak, "own links, GB/s one way": one_way},
        **{
            "FLOP a byte": 1e3 * peak / one_way,
            "FLOP a byte, one 400G card": 1e3 * peak / 50,
        },
    }
lesson.table(rows, first="balance", note="MI300X: its seven links together.")

# %% [markdown] slow links
# Where does 6,144 come from? A gated expert of width d in a model of width h does 6 h d FLOP for a token, and
# moves h bytes there and 2 h back: 2 d FLOP a byte, and d is 3,072. Held against 6,144: inside a node all of them
# hide, the MI300X just so (with the usable part of its links it would not). Over one network card only the H20 does,
# whose compute was cut. And V3's experts are 2,048 wide, not 3,072. What hides then, and which width would, is
# 11.bandwidth_rule.
#
# So the slow link makes the design. The H800 is an H100 with less than half of its NVLink. DeepSeek-V3's limit of
# four nodes, two-hop forwarding and FP8 dispatch are answers to one table of bandwidths.
#
# > **Claim and fact: bypassing CUDA**
# >
# > - Claim: DeepSeek bypassed CUDA by programming the GPU in PTX. Fact: kernels that move tokens use customised PTX
# >   instructions so as to disturb the L2 less; PTX is CUDA's own instruction set. (source: arXiv 2412.19437, section
# >   3.2.2)
#
# > **Facts: reports about Ascend, which do not agree**
# >
# > - A 910C has 784 GB/s of links, both ways. (source: besthub.dev, on Huawei Connect 2025)
# > - It has 400 GB/s from chip to chip. (source: techpowerup.com 335749, which cites DigiTimes)
# > - R2's training on Ascend failed: unstable, slow links between chips, immature software; inference was to stay
# >   there. (source: datashieldhq.site 2025-08-14, which cites the Financial Times)
# > - V4's overlapped expert kernels run on Ascend NPUs. (source: DeepSeek-V4 report, section 3.1, as above)
#
# ## 19. On paper to 10,000 GPUs
#
# What grows, and how? A message of 256 MB for an all-reduce; InfiniBand's alpha of 9.6 µs and 50 GB/s.

# %% guess growth
guess = predict(
    "11.growth",
    "From 8 to 10,000 ranks: which part of the ring's time has grown a thousandfold? "
    "What of the tree's steps (log2, rounded up)? And how many messages does one "
    "direct all-to-all have?",
    ring=lesson.choice("alpha", "bytes", "both", label="ring"),
    tree=lesson.number("steps of the tree"),
    pairs=lesson.number("messages", unit="million", factor=1.02),
)

# %% growth
rows, alpha, bandwidth = {}, 9.6e-6, 50e9
for n in (8, 64, 1024, 10_000):
    ring, tree = (
        lesson.COLLECTIVE_FORMS["all-reduce", name] for name in ("ring", "tree")
    )
    rows[f"{n:,}"] = {
        "ring: alpha, ms": 1e3 * alpha * ring.steps(n),
        "ring: bytes, ms": 1e3 * ring.share(n) * 256e6 / bandwidth,
        "tree: steps": tree.steps(n),
        "tree: bytes, ms": 1e3 * tree.share(n) * 256e6 / bandwidth,
        "all-to-all: messages": n * (n - 1),
    }
first, last = rows["8"], rows["10,000"]
parts = {part: f"ring: {part}, ms" for part in ("alpha", "bytes")}
grown = [part for part, column in parts.items() if last[column] > 500 * first[column]]
guess.reveal(
    ring="both" if len(grown) == 2 else grown[0],
    tree=last["tree: steps"],
    pairs=last["all-to-all: messages"] / 1e6,
    because="2 (n - 1) alphas against 2 (n - 1) / n messages; 2 × 14; n (n - 1).",
)
lesson.table(rows, first="ranks")

# %% [markdown] growth explained
# The ring's bytes stop growing at twice the message; its alpha never does, and passes the bytes before 1,024 ranks.
# The tree's steps hardly grow. All-to-all has a hundred million messages at 10,000 ranks, of 26 KB each: that is
# why expert parallelism stays within some hundred ranks, or goes in two hops. A *hierarchy* divides n: rings of 8
# inside, of n / 8 across.
#
# ## 20. What this sitting leaves out
#
# Congestion in switches, adaptive routing, cards that die; a model with two numbers a link knows none of it.
# Measure, then fit, then trust the line where you measured.
#
# **You have** a line for every link, a simulator's rule, and three bounds that decide a deployment. In the lab:
# 11.alpha_beta, 11.node_limited, 11.bandwidth_rule. Next: dispatch and combine.

# %% second sitting ends
lesson.sitting("11", 2)

# %% [markdown] who holds what
# # Sitting 3: dispatch and combine
#
# ## 21. Who holds what
#
# A layer with many experts does not fit one GPU. *Expert parallelism* deals the experts out: each rank owns some, and
# has tokens of its own, the *data-parallel* share of a batch. A token's experts may be anywhere. So the layer begins
# with an exchange and ends with one:
#
# 1. **dispatch**: each token goes to the ranks that own its experts;
# 2. each rank computes its experts, all tokens of one expert in one product;
# 3. **combine**: the results go home, and each token adds its k of them up, weighted.
#
# Words: the rank that a token lives on is the *source* of it, the rank that holds an expert is its *owner*. A *copy* is
# a row on its way to one expert; a token makes k of them.
#
# Four ranks, eight experts, so two a rank: rank r owns experts 2r and 2r + 1. Six tokens, a to f, and k = 2:
#
# | source | token: experts |
# |---|---|
# | rank 0 | a: 0, 5; b: 2, 1 |
# | rank 1 | c: 7, 0 |
# | rank 2 | none |
# | rank 3 | d: 1, 0; e: 6, 7; f: 1, 4 |
#
# What arrives is put into one order, always: by expert, then by source, then by token. So an expert's rows lie
# together, and the order does not depend on whose message was faster.

# %% guess hand
guess = predict(
    "11.hand",
    "Do the dispatch by hand. Of the 12 copies, how many leave their rank? How many "
    "rows does rank 0 get? Which token is its fourth row?",
    leave=lesson.number("copies that leave"),
    rows=lesson.number("rows of rank 0"),
    fourth=lesson.choice("a", "b", "c", "d", "f", label="its fourth row"),
)

# %% dispatch by hand
CHOSEN = (((0, 5), (2, 1)), ((7, 0),), (), ((1, 0), (6, 7), (1, 4)))
experts = [torch.tensor(rank, dtype=torch.int64).view(-1, 2) for rank in CHOSEN]
names = [[float(i)] for i in range(6)]  # a row of one number: which token it is
x = [torch.tensor(part).view(-1, 1) for part in (names[:2], names[2:3], [], names[3:])]
arrived = lesson.exchanged(x, experts, num_experts=8)  # on four real ranks
first = ["abcdef"[int(i)] for i in arrived.values[0][0][:, 0]]
owners = [chosen // 2 for chosen in experts]
guess.reveal(
    leave=sum((owner != rank).sum() for rank, owner in enumerate(owners)),
    rows=len(first),
    fourth=first[3],
    because="e's experts are at home; d wants both experts of rank 0. Expert 0 has a, "
    "c, d, and then expert 1 begins: b, d, f.",
)
lesson.dispatch_figure(experts, 8, "abcdef")

# %% [markdown] hand explained
# Look at three things. Rank 2 has no tokens and still works: others send to it. Expert 3 has nothing to do. And token d
# crosses the same wire twice, once for each of its experts on rank 0: we come back to that.
#
# ## 22. Counts first
#
# The pieces that ranks send each other are *uneven*: rank 3 sends three rows to rank 0 and none to rank 1. And nobody
# knows how many will come. Where is rank 0 to put three rows from rank 3, before rank 3 has said that it has three? So
# there are two exchanges. The first one is small: each rank tells each other rank how many rows it has for it. The sum
# of these counts says how much room to make. Each alone is a *split size*: where one source's rows end, and the next
# one's begin.
#
# The call is an *all-to-all*: rank s cuts its tensor into as many pieces as there are ranks, and piece d goes to rank
# d. Here a piece of the counts is one number, int64 (in the lab one for each local expert).

# %% counts of each rank
table = torch.stack([owner.flatten().bincount(minlength=4) for owner in owners])
lesson.table(
    {
        f"rank {s} has": {f"for rank {d}": n for d, n in enumerate(row.tolist())}
        for s, row in enumerate(table)
    }
)

# %% guess counts
guess = predict(
    "11.counts",
    "Each rank calls all_to_all_single with its row of this table. What does rank 3 "
    "have then? How many bytes cross wires in all? And what if rank 2, which has no "
    "tokens, returned before the call?",
    third=lesson.choice("0, 1, 0, 2", "3, 0, 1, 2", "1, 1, 0, 2", label="rank 3 has"),
    bytes=lesson.number("bytes in all", unit="bytes"),
    others=lesson.choice("go on with zeros", "wait, then fail", label="the others"),
)


# %% counts
def swap(sent):
    came = torch.empty_like(sent)
    dist.all_to_all_single(came, sent)
    return came


found = lesson.run_ranks(swap, 4, each=[{"sent": row} for row in table])
with lesson.kept_error(lesson.W2WError) as kept:
    lesson.run_ranks(lesson.left_early(rank=2), 4, seconds=10)
guess.reveal(
    third=", ".join(str(n) for n in found.values[3].tolist()),
    bytes=sum(map(sum, found.sent)),
    others="wait, then fail" if kept.error else "go on with zeros",
    because="a column of the table: all together it has been transposed. 12 numbers "
    "of 8 bytes leave their ranks.",
)
lesson.table({"without rank 2": {"what run_ranks says": str(kept.error)}}, first="")

# %% [markdown] every rank calls
# An all-to-all is a promise of all ranks of a group. A rank with nothing to send must call it all the same, with empty
# pieces. "If there are no tokens, return" is a classic. Here the idle rank's process ended, so the others get an
# error, and the rank that is named first is innocent: read *had returned already*. Where that process lives on, they
# hang until a time-out of some minutes, and only with the batch in which a rank happens to be idle.
#
# Counts cost little in bytes, and much in time on a GPU: the host has to *wait* for them before it can make room for
# the rows and launch the next kernel. When tokens are few, as in decoding, that wait is longer than the exchange. So
# there is the other way, a **fixed capacity**: room for the most that could come, and no counts before the rows.

# %% capacity
E, RANKS, MOST, K = 256, 32, 128, 8  # V3's experts and k; 32 ranks of 128 tokens each
room = MOST * RANKS  # of one expert: every token of every rank might want it
lesson.table(
    {
        "rows of room for one expert": room,
        "rows it gets on average": MOST * RANKS * K / E,
        "of the room filled, %": 100 * K / E,
        "room of a rank at 7,168 columns of FP8, MiB": room
        * (E // RANKS)
        * 7168
        / 2**20,
    }
)

# %% [markdown] capacity facts
# 97% of the room stays empty; only what is filled travels. A layout that never changes needs no host in between, so
# the whole step can be one recorded graph of launches.
#
# > **Facts: counts and capacity**
# >
# > - DeepEP's normal kernels do not know beforehand how many tokens a rank will get: the CPU waits for the count. Its
# >   low-latency kernels are compatible with CUDA graphs; they take `num_max_dispatch_tokens_per_rank`, the same on all
# >   ranks. (source: [DeepEP, docs/legacy.md](https://github.com/deepseek-ai/DeepEP/blob/main/docs/legacy.md))
# > - Latency of low-latency dispatch and combine for 128 tokens a rank, top-8: 77 and 114 μs on 8 ranks, 173 and 314 μs
# >   on 64 (H800, RDMA). (source: DeepEP, docs/legacy.md)
# > - mori on 8 MI300X, 128 tokens, top-8: 35 and 47 μs. (source: [mori, README](https://github.com/ROCm/mori))
#
# ## 23. Bytes of a token
#
# Where choices spread evenly over R ranks, the share 1 - 1/R of them leaves home. So a token of D numbers in bf16
# sends on average $k \cdot D \cdot 2 \cdot (1 - 1/R)$ bytes, and gets as many back.
#
# But d's two copies were the same bytes on the same wire. *Once for a rank*: send it once to each rank that owns any of
# its experts, with the list of them, and make copies there. How often does that help? For k = 4 of 8 experts, two to a
# rank: 8 experts have 70 sets of four, and 15 of them avoid both experts of a given rank.

# %% guess wire
guess = predict(
    "11.wire",
    "4 ranks, 8 experts, k = 4, D = 1,024, bf16, 256 tokens on each rank. Bytes that "
    "a token sends in a dispatch, with its counts: one row for each copy, and one for "
    "each rank?",
    copies=lesson.number("for each copy", unit="bytes", factor=1.05),
    once=lesson.number("for each rank", unit="bytes", factor=1.05),
)

# %% wire
tokens, D = (256,) * 4, 1024
experts = lesson.routed(tokens, num_experts=8, k=4)
x = [torch.randn(n, D).bfloat16() for n in tokens]
sent = {
    name: sum(map(sum, lesson.exchanged(x, experts, 8, once).sent)) / sum(tokens)
    for name, once in {
        "a row for each copy": False,
        "a row for each rank": True,
    }.items()
}
paper = {"a row for each copy": 4 * 0.75, "a row for each rank": 3 * (1 - 15 / 70)}
guess.reveal(
    copies=sent["a row for each copy"],
    once=sent["a row for each rank"],
    because="4 × 2,048 × 3/4, and 3 other ranks × 55/70 × 2,048.",
)
lesson.table(
    {
        name: {
            "counted, bytes a token": sent[name],
            "on paper": rows * 2 * D,
            "rows a token": rows,
        }
        for name, rows in paper.items()
    },
    first="dispatch",
)

# %% [markdown] once explained
# The more experts of a token live together, the more is saved. With DeepSeek-V3's 8 of 256 experts over 64 ranks it is
# about 4% by chance: copies rarely share a rank. Over 8 *nodes* it is much, and the router is made to share
# them: at most 4 nodes for a token (sitting 2). The real libraries send once for a rank or once for a node, and expand
# there. In the lab you send a row for each copy, and count.
#
# ## 24. FP8 out, BF16 back
#
# DeepSeek-V3 dispatches in FP8, and combines in BF16. Why not both in FP8? Two questions: what does it save, and what
# does it cost in digits? A row in FP8 has D codes and a float32 for each 128 of them: (1 + 4/128) / 2 of bf16, 51.6%.
#
# For the digits a small layer: 8 experts of 1,024 → 256 → 1,024 columns, k = 4. Numbers in E4M3, with scales that fit,
# are off by about 2.6% (root of the mean square, lesson 08). Each expert's product mixes all 1,024 of its inputs,
# whose errors are independent; so the error stays the same share of the result. The combine adds four results with
# weights near 1/4. Two kinds of experts: one reads what arrives as it is; one has **FP8 products**, as in V3, and
# rounds its input to the same E4M3 tiles anyhow.

# %% guess precision
guess = predict(
    "11.precision",
    "What does FP8 out add to the error of the layer, where the experts' products are "
    "FP8 anyhow? And where they are not: which costs more digits, FP8 out or FP8 back?",
    added=lesson.choice("nothing", "as much again", label="FP8 out, FP8 products"),
    worse=lesson.choice("out", "back", "nearly the same", label="bf16 products"),
)

# %% precision
torch.manual_seed(15)
up, down = torch.randn(8, D, 256) / D**0.5, torch.randn(8, 256, D) / 16
x, gates = torch.randn(256, D).bfloat16().float(), torch.rand(256, 4).softmax(1)
chosen = lesson.routed((256,), 8, 4)[0]


def layer(out, back, products):
    rows = lesson.through_wire(lesson.through_wire(x, out), products)
    y = torch.stack(
        [torch.nn.functional.silu(rows @ u) @ d for u, d in zip(up, down, strict=True)]
    )
    home = lesson.through_wire(y.flatten(0, 1), back).view_as(y)
    return sum(gates[:, j, None] * home[chosen[:, j], range(256)] for j in range(4))


def off(value, exact):
    return 100 * ((value - exact).square().mean() / exact.square().mean()).sqrt()


exact = {kind: layer("BF16", "BF16", kind) for kind in ("BF16", "FP8")}
size = {"BF16": 2 * D, "FP8": D + 4 * D // 128}
rows = {}
for out, back in (("BF16", "BF16"), ("FP8", "BF16"), ("BF16", "FP8"), ("FP8", "FP8")):
    rows[f"{out} out, {back} back"] = {"bytes of a copy": size[out] + size[back]} | {
        f"error added, {kind} products, %": off(layer(out, back, kind), exact[kind])
        for kind in exact
    }
bf16, fp8 = (
    [row[f"error added, {kind} products, %"] for row in rows.values()] for kind in exact
)
guess.reveal(
    added="nothing" if fp8[1] < 1e-3 else "as much again",
    worse="nearly the same"
    if 0.7 < bf16[1] / bf16[2] < 1.4
    else "out"
    if bf16[1] > bf16[2]
    else "back",
    because="codes rounded to codes again stay what they are.",
)
lesson.table(rows, first="on the wire")

# %% [markdown] precision explained
# - *Out* in FP8 is free of charge where the products read FP8: the rounding is done once, before the wire and not
#   behind it. The source must only cut its tiles as the product wants them, 1 × 128 along D.
# - *Back* in FP8 would be a rounding that nobody needs: what comes home is added up, and added to the residual stream.
#   It would save a third of the bytes that are left, and V3's authors kept BF16 for the training's precision.
#
# > **Facts: the wire of DeepSeek-V3**
# >
# > - Activations are quantised to FP8 before the experts' first product, and so dispatched; forward and backward
# >   combine stay in BF16, to preserve precision in critical parts of training. (source:
# >   [arXiv 2412.19437](https://arxiv.org/abs/2412.19437), section 3.3.3)
#
# gloo carries no float8: it says "Invalid scalar type". For NCCL a change of torch maps it to bytes
# ([pytorch #126556](https://github.com/pytorch/pytorch/pull/126556)). In the lab you do that yourself.
#
# ## 25. The order of a combine
#
# Section 6 once more, with more terms: there 4 terms changed about 32 sums in 100. The k results of a token come from
# k ranks, and each time another one is first. Whoever adds them as they come adds them in another order each time.
# Float sums depend on the order: here are 8 terms a sum, the size of a combine of V3, 100,000 sums, each in the order
# of k and in 5 orders of arrival. In float32, and rounded to bf16 after.

# %% guess order of terms
guess = predict(
    "11.terms",
    "Of 100,000 float32 sums of 8 random terms: how many in a hundred have other bits "
    "in an order of arrival than in the order of k? And after rounding to bf16?",
    float32=lesson.number("float32", unit="%", factor=1.4),
    bf16=lesson.choice("none", "under 1%", "over 10%", label="rounded to bf16"),
)

# %% order of terms
torch.manual_seed(16)
terms = torch.rand(8, 100_000) * torch.randn(8, 100_000)
(of_k,) = lesson.sums_in_orders(terms, 1, seed=1)
orders = lesson.sums_in_orders(terms, 5, seed=2)
unlike = [100 * (of_k != other).double().mean() for other in orders]
narrow = [
    100 * (of_k.bfloat16() != other.bfloat16()).double().mean() for other in orders
]
mean = sum(narrow) / 5
guess.reveal(
    float32=sum(unlike) / 5,
    bf16="none" if mean == 0 else "under 1%" if mean < 1 else "over 10%",
    because="seven roundings, and some of them fall otherwise; bf16 cuts 16 of the "
    "bits away, but a sum may lie beside a middle.",
)
lesson.table(
    {
        f"order {n + 1}": {
            "other float32, %": unlike[n],
            "other bf16, %": narrow[n],
            "largest difference": (of_k - other).abs().max(),
        }
        for n, other in enumerate(orders)
    },
    first="arrival",
)

# %% [markdown] order of terms explained
# The differences are tiny, and each is harmless. But a run that differs in its last bits at step 1 differs in its
# losses at step 1,000, so no two runs can be compared, and a rank that computes wrongly once a day cannot be found. The
# remedy costs a buffer: put each result where its k says, then add in the order of k. (A sum of all that comes from one
# rank, before it travels, saves bytes and is another order; but a fixed one.) Atomic additions on a GPU have no order
# at all.
#
# ## 26. The kernels
#
# On a GPU a dispatch is three kernels around the wire: *pack* the copies in the order of their owners, move them, and
# at the end *gather and weigh*. Here is the first, as flat as can be: one lane for a few elements, and the list `order`
# says which token a row is.


# %% pack kernel
@triton.jit
def pack_kernel(x_ptr, order_ptr, out_ptr, n, D, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(order_ptr + i // D, mask=i < n, other=0)
    part = tl.load(x_ptr + token * D + i % D, mask=i < n)
    tl.store(out_ptr + i, part, mask=i < n)


# %% [markdown] before gathers
# `order` jumps about in x. A load costs *sectors*: 32 bytes on `sm_80`, 128 on `gfx942` (lesson 02). Two things have to
# be packed in an FP8 dispatch: rows of codes, 1,024 bytes each at D = 1,024, and rows of scales, 8 × 4 = 32 bytes.

# %% guess gather
guess = predict(
    "11.gather",
    "In the order of experts, against the order of tokens: how many times the sectors "
    "of x? (Count loads of x alone.)",
    codes=lesson.number("rows of 1,024 bytes, both", factor=1.05),
    nvidia=lesson.number("rows of 32 bytes, sm_80", factor=1.1),
    amd=lesson.number("rows of 32 bytes, gfx942", factor=1.1),
)

# %% gather
torch.manual_seed(17)
T, targets = 512, ("sm_80", "gfx942")
shuffled = torch.randperm(T, dtype=torch.int32)
shapes = {
    "codes, 1,024 bytes": (256, torch.float32),
    "scales, 32 bytes": (8, torch.float32),
}
rows, times = {}, {}
for what, (wide, dtype) in shapes.items():
    x, out = torch.randn(T, wide, dtype=dtype), torch.empty(T, wide, dtype=dtype)
    loads = {}
    for name, order in {
        "by token": torch.arange(T, dtype=torch.int32),
        "by expert": shuffled,
    }.items():
        grid = (triton.cdiv(x.numel(), 1024),)
        gpus = lesson.launch_on(
            targets, pack_kernel, grid, x, order, out, x.numel(), wide, BLOCK=1024
        )
        assert torch.equal(out, x[order.long()])
        loads[name] = lesson.sectors_of_line(gpus, pack_kernel, "part = tl.load")
    for target in targets:
        times[what, target] = loads["by expert"][target] / loads["by token"][target]
        rows[f"{what}, {target}"] = {n: loads[n][target] for n in loads} | {
            "times": times[what, target]
        }
guess.reveal(
    codes=max(times["codes, 1,024 bytes", target] for target in targets),
    nvidia=times["scales, 32 bytes", "sm_80"],
    amd=times["scales, 32 bytes", "gfx942"],
    because="a row of 1,024 bytes is whole sectors wherever it lies; one of 32 bytes "
    "is one sector, or a quarter of one whose rest nobody asked for.",
)
lesson.table(rows, first="sectors of loads")

# %% [markdown] what the listing shows
# (Not quite four times: some neighbours stay neighbours.) And in instructions? In the listing look for the loads of
# line 5, `ld.global.v4` and `buffer_load_dwordx4`. They are 16 bytes wide, as in a plain copy, since the numbers of a
# row lie together. The jump costs one multiplication a load, token times D: on `gfx942` the last `v_mul_lo_u32`. (The
# other makes i % D. On `sm_90` a lane has two loads, and two of each.)

# %% listing of a pack
args = (x, order, out, x.numel(), 256)
listing(pack_kernel, "sm_90", "gfx942", args=args, BLOCK=1024).only(
    "part = tl.load", "tl.store"
)

# %% [markdown] gathers explained
# Whole rows can be gathered in any order: the jumps cost no sector, since a row fills its own. Short rows do not, and
# the scales are short rows. So codes and scales of a copy had better travel as *one* row of bytes, codes first and
# scales behind: one gather, one exchange, one thing to keep in order.
#
# The same kernel fused with the quantiser: a program takes a row, finds the size of each tile in registers, and writes
# codes and scales into that one row. `codes_ptr` and `scales_ptr` are the same memory under two types (lesson 08):


# %% fp8 pack kernel
@triton.jit
def fp8_pack_kernel(
    x_ptr, order_ptr, codes_ptr, scales_ptr, D, WIRE,
    LARGEST: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    tile = tl.arange(0, TILES)
    d = tile[:, None] * 128 + tl.arange(0, 128)[None, :]
    x = tl.load(x_ptr + tl.load(order_ptr + row) * D + d).to(tl.float32)
    amax = tl.max(tl.abs(x), 1)
    scale = tl.where(amax > 0, amax / LARGEST, 1.0)
    codes = tl.clamp(x / scale[:, None], -LARGEST, LARGEST).to(
        codes_ptr.dtype.element_ty
    )
    tl.store(codes_ptr + row * WIRE + d, codes)
    tl.store(scales_ptr + (row * WIRE + D) // 4 + tile, scale)


# %% fp8 pack
torch.manual_seed(18)
T, K, D = 32, 4, 1024
x = torch.randn(T, D).bfloat16()
order = lesson.routed((T,), 16, K)[0].flatten().argsort(stable=True)
FP8 = {"sm_89": torch.float8_e4m3fn, "gfx942": torch.float8_e4m3fnuz}
rows = {}
for target, fp8 in FP8.items():
    wire = torch.empty(T * K, D + 4 * D // 128, dtype=torch.uint8)
    views = wire.view(fp8), wire.view(torch.float32)
    options = {"LARGEST": torch.finfo(fp8).max, "TILES": D // 128}
    args = (x, (order // K).int(), *views, D, wire.shape[1])
    gpus = lesson.launch_on((target,), fp8_pack_kernel, (T * K,), *args, **options)
    codes = wire[:, :D].contiguous().view(fp8).float().view(T * K, -1, 128)
    left = (codes * wire[:, D:].contiguous().view(torch.float32)[..., None]).flatten(1)
    stored = lesson.counted(gpus, "global_store_bytes")[target] / (T * K)
    rows[target] = {
        "bytes of a row on the wire": wire.shape[1],
        "bytes stored": stored,
        "of bf16, %": 100 * wire.shape[1] / (2 * D),
        "error, %": off(left, x[order // K].float()),
    }
lesson.table(rows, first="one row")

# %% [markdown] before home
# FN on NVIDIA, FNUZ on an MI300X: between two vendors the bytes on the wire would need 08.fn_to_fnuz. Each byte is
# stored once, and the error is that of E4M3. A separate quantiser would write all this and the pack would read it
# again.
#
# The way home. *Gather and weigh*: a program for each token reads its k results, adds them in the order of k, and
# stores once. Or *scatter and add*: a program for each result adds it to its token's row by atomic additions, in
# float32, as they come.


# %% home kernels
@triton.jit
def weigh_kernel(
    rows_ptr, place_ptr, weights_ptr, out_ptr, D, K: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token, d = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for j in tl.static_range(K):
        row = tl.load(place_ptr + token * K + j)
        part = tl.load(rows_ptr + row * D + d, mask=d < D)
        total += tl.load(weights_ptr + token * K + j) * part.to(tl.float32)
    tl.store(out_ptr + token * D + d, total, mask=d < D)


@triton.jit
def scatter_kernel(
    rows_ptr, copy_ptr, weights_ptr, out_ptr, D, K: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row, d = tl.program_id(0), tl.arange(0, BLOCK)
    copy = tl.load(copy_ptr + row)  # token * K + j
    part = tl.load(rows_ptr + row * D + d, mask=d < D).to(tl.float32)
    part *= tl.load(weights_ptr + copy)
    tl.atomic_add(out_ptr + copy // K * D + d, part, mask=d < D, sem="relaxed")


# %% guess home
guess = predict(
    "11.home",
    "k = 4, results in bf16. For each column of a token: how many bytes does gather "
    "and weigh read and store? How many atomic additions does the other one make? (A "
    "read and a write of 4 bytes each, in the L2.)",
    bytes=lesson.number("gather and weigh", unit="bytes", factor=1.1),
    atomics=lesson.number("atomic additions"),
)

# %% home
place, (results, gates) = order.argsort().int().view(T, K), torch.randn(2, T * K, D)
results, gates = results.bfloat16(), gates[:T, :K].contiguous()
want = sum(gates[:, j, None] * results[place[:, j].long()].float() for j in range(K))
rows = {}
for target in ("sm_80", "gfx942"):
    one, other = torch.empty(T, D, dtype=torch.bfloat16), torch.zeros(T, D)
    gathers = (weigh_kernel, (T,), results, place, gates, one, D)
    adds = (scatter_kernel, (T * K,), results, order.int(), gates, other, D)
    for name, launch in {"gather and weigh": gathers, "scatter and add": adds}.items():
        gpu = lesson.launch_on((target,), *launch, K=K, BLOCK=D)
        moved = lesson.counts(gpu, "global")[target]
        columns, sector = T * D, lesson.counted(gpu, "sector_bytes")[target]
        sectors = moved["global_load_sectors"] + moved["global_store_sectors"]
        rows[f"{name}, {target}"] = {
            "bytes loaded and stored": sectors * sector / columns,
            "atomic additions": moved["global_atomics"] / columns,
            "largest difference": (launch[-2] - want).abs().max(),
        }
guess.reveal(
    bytes=rows["gather and weigh, gfx942"]["bytes loaded and stored"],
    atomics=rows["scatter and add, sm_80"]["atomic additions"],
    because="4 × 2 to read, 2 to store; and one addition for each of 4 results.",
)
lesson.table(rows, first="for each column of a token")

# %% [markdown] home explained
# (On `sm_80` each warp loads places and weights like any other data: one byte more. The differences of *gather and
# weigh* are the rounding of its result to bf16.) The scatter needs zeros before it and a cast to bf16 behind it,
# besides; and each run may round otherwise. So the ordered sum is also the cheaper one: determinism costs nothing here.
# What it needs is that all results have come.
#
# ## 27. The same two words in two libraries
#
# DeepEP (NVIDIA) and mori (AMD) offer the same two operations, by nearly the same names:
#
# | | DeepEP, legacy interface | mori, MORI-EP |
# |---|---|---|
# | out | `Buffer.dispatch` | `EpDispatchCombineOp.dispatch` |
# | where a token goes | `topk_idx`, -1 for none; `is_token_in_rank` | `indices`, int32 |
# | what comes | rows, `topk_idx`, weights, counts by local expert | rows, weights, scales, indices, their number |
# | FP8 | x is a pair: codes and scales | `scales` beside the input |
# | home | `Buffer.combine` with the `handle` of dispatch | `combine` with `indices` |
# | room | `num_worst_tokens`, or counted | `max_num_inp_token_per_rank` |
# | small batches | `low_latency_dispatch`, `low_latency_combine` | kernels `InterNodeV1LL`, `AsyncLL` |
# | without waiting | `return_recv_hook` | `dispatch_send`, `dispatch_recv` |
#
# In both, a row that comes has the list of its token's experts with it. DeepEP's normal combine adds **without**
# weights: they are applied where the experts are. Ours carries none across and weighs at home.
#
# > **Facts: interfaces**
# >
# > - DeepEP: the names and what combine adds. (source: DeepEP, deep_ep/buffers/legacy.py, docstrings of `dispatch`,
# >   `combine` and `low_latency_dispatch`, and docs/legacy.md)
# > - mori: the names, `indices` as int32, five results of dispatch. (source: mori, docs/MORI-EP-GUIDE.md, sections 1
# >   to 3)
# > - On 8 GPUs of a node, dispatch and combine: 153 and 158 GB/s on H800 with DeepEP's normal kernels, 4,096 tokens,
# >   top-8; its NVLink gives about 160 GB/s at most. (source: DeepEP, docs/legacy.md)
# > - 307 and 330 GB/s on 8 MI300X with mori, 80 CUs, 4,096 tokens, top-8. (source: mori, README)
#
# The two rates are no race: an H800 has the narrower link, and DeepEP fills it.
#
# **Redundant experts.** An expert that everybody wants makes its owner late, and all wait for the latest. A deployment
# then holds it once more on another rank, as a redundant expert; dispatch sends each token to one of the two. For
# dispatch nothing changes but the table from experts to places, which may now give more than one. Sitting 4 fills this
# table.
#
# **You have** the two exchanges: order, counts, bytes, digits. In the lab: 11.dispatch, 11.combine, 11.fp8_dispatch,
# and a layer over four ranks that gives the bits of one. Next: what hides the time of all this.

# %% third sitting ends
lesson.sitting("11", 3)

# %% [markdown] behind each other
# # Sitting 4: a step is as long as its longest part
#
# ## 28. Behind each other
#
# While a message is on a wire nobody needs to do anything. So the experts may work meanwhile, on something else: the
# tokens of a rank are cut into *micro-batches*, and while one is computed the next one travels. In torch a transfer
# that has only begun is a *work*: `async_op=True` returns one at once, and `work.wait()` returns when the transfer is
# over; on a GPU it makes the current *stream* wait, and the host goes on. What it fills may not be read before.
#
# An experiment with real processes: four ranks, four micro-batches. The process group itself delays messages: each one
# takes 0.08 s on its link, and a link carries one message after the other. Experts take 0.1 s for a micro-batch. First
# one thing after the other: out, compute, back, four times. Then overlapped: while micro-batch i is computed, number
# i + 1 comes and the results of i - 1 go back, over the same links.

# %% guess overlap
guess = predict(
    "11.overlap_seconds",
    "A link carries eight messages: four ways out, four back. Experts compute four "
    "times. How long do the two ways take, at least?",
    apart=lesson.number("one after the other", unit="s", factor=1.25),
    over=lesson.number("overlapped", unit="s", factor=1.25),
)

# %% overlap
shown = lesson.overlapped()
apart, over = shown.seconds.values()
guess.reveal(
    apart=apart,
    over=over,
    because="4 × (0.08 + 0.1 + 0.08) = 1.04. Overlapped the link alone needs 8 × 0.08 "
    "= 0.64, which is more than 0.08 + 4 × 0.1 + 0.08; twice it waits for a compute.",
)
lesson.timeline_figure(shown.lanes)

# %% [markdown] overlap read
# (Figures a little above these are the machine's own work.) Read the lower half: while *experts* work, a message is on
# the *link*. It carries them one after the other, so an exchange that has begun may stand in line: *back 1* takes its
# turn before *out 3*. And read the gaps between computes: there the link is the one that is busy, so hiding has an end.
# Two rules follow. Overlapped, a layer takes at least the longer of two times, and little more: all messages of the
# wire, or all computes with a first way out and a last way back that nothing hides. And overlap wins at most a factor
# of two, where both are equally long.
#
# More compute for each micro-batch, 0.25 s in place of 0.1, and the same wire:

# %% guess share
guess = predict(
    "11.hidden_share",
    "Exchanges take 8 × 0.08 = 0.64 s when nothing hides them. The first way out and "
    "the last way back stay in the open. Which share can be hidden?",
    share=lesson.number("share hidden", unit="%", factor=1.15),
)

# %% share
longer = lesson.overlapped(work=0.25)
guess.reveal(
    share=100 * longer.hidden,
    because="6 of 8: 75%. With n micro-batches it is 1 - 1/n.",
)
lesson.table(
    {
        f"compute {run.compute / 4:.2f} s": {
            **{f"{name}, s": seconds for name, seconds in run.seconds.items()},
            "hidden, %": 100 * run.hidden,
        }
        for run in (shown, longer)
    },
    first="for each micro-batch",
)

# %% [markdown] micro-batches
# So more micro-batches? Each costs a latency for every message, and experts that see fewer tokens at a time read the
# same weights for less work (unit 10). Two is common: DeepSeek-V3 runs two micro-batches of like size in prefilling,
# one in attention and experts while the other is in dispatch and combine (source: DeepSeek-V3 report, arXiv 2412.19437,
# section 3.4).
#
# ## 29. What communication takes from compute
#
# Section 8 named who can move bytes. Where kernels do it, NVLink and xGMI are memory to them: to store to the address
# of another GPU *is* the transfer. Kernels run on SMs or CUs, and these are then missing in the product that the
# transfer was to hide behind.
#
# > **Claim and fact: free when it overlaps**
# >
# > - Claim: communication is free when it overlaps. Fact: DeepSeek-V3 gave 20 of the H800's 132 SMs to it. (source:
# >   DeepSeek-V3 report, arXiv 2412.19437, section 3.2.2)
# > - DeepEP V2: 4 to 6 SMs in place of 24 for training as V3's, at equal speed or better. (source: deepseek-ai/DeepEP,
# >   README, New features)
# > - mori on 8 MI300X: 80 CUs for the rates of section 27; over two nodes 57 GB/s of RDMA with 32 CUs, 63 with 80.
# >   (source: ROCm/mori, README, MORI-EP)

# %% guess units
h800, mi300x = CHIPS["H800"].units.value, CHIPS["MI300X"].units.value
guess = predict(
    "11.units_taken",
    f"An H800 has {h800} SMs, an MI300X {mi300x} CUs. A product that is bound by its "
    "matrix units loses what communication occupies. Which share of its speed?",
    v3=lesson.number("20 SMs", unit="%", factor=1.03),
    v2=lesson.number("6 SMs", unit="%", factor=1.03),
    mori=lesson.number("80 CUs", unit="%", factor=1.03),
)

# %% units
taken = {
    "DeepSeek-V3, H800": (20, h800),
    "DeepEP V2, H800": (6, h800),
    "mori, MI300X": (80, mi300x),
}
rows = {
    name: {"taken": part, "of": whole, "share, %": 100 * part / whole}
    for name, (part, whole) in taken.items()
}
share = [row["share, %"] for row in rows.values()]
guess.reveal(v3=share[0], v2=share[1], mori=share[2], because="20/132, 6/132, 80/304.")
lesson.table(rows, first="communication on")

# %% [markdown] zero SM
# (Not the same task: mori's figure is for eight GPUs in a node, and for the best of its settings.) **Zero-SM** means
# that no kernel runs during the transfer. A network card reads memory by itself (RDMA), or a copy engine does, and the
# GPU only rings a bell. DeepEP lists such transfers for models that are cut by layers or by sequence. For experts it
# is harder: somebody must sort rows by destination before, and weigh and add them up after. DeepEP V1 had a
# low-latency mode whose waiting occupied no SM; V2 no longer supports it (source: deepseek-ai/DeepEP, README, Notes).
#
# ## 30. Who holds everybody up
#
# Four ranks do the same step: compute, exchange with all, wait for all. Rank 2 has twice the tokens. Rank 1 computes
# three times as slowly for each token. What does a profile show? Each rank notes its own events, with its own clock.

# %% guess victim
guess = predict(
    "11.victim",
    "Tokens: 300, 300, 600, 300. Rank 1 takes three times the usual time for a token. "
    "All wait for the last. Who waits least? And who waits for longer than rank 2?",
    least=lesson.choice("rank 0", "rank 1", "rank 2", label="waits least"),
    longer=lesson.choice("ranks 0 and 3", "rank 1", "nobody", label="longer"),
)


# %% victim
def waits(timeline):
    """Seconds in recv and barrier, by rank."""
    spent = [0.0] * 4
    for event in timeline:
        if event["name"] in ("recv", "barrier"):
            spent[event["rank"]] += event["end"] - event["start"]
    return spent


timeline = lesson.recorded(slow_rank=(1, 3.0))
spent = waits(timeline)
ranks = range(4)
longer_than_2 = {rank for rank in ranks if spent[rank] > spent[2] * 1.02}
guess.reveal(
    least=f"rank {min(ranks, key=spent.__getitem__)}",
    longer="ranks 0 and 3" if longer_than_2 == {0, 3} else "rank 1",
    because="who is last waits for nobody. 300 tokens at three times the cost are more "
    "than 600 at the usual one.",
)
lesson.table({f"rank {r}": {"in recv and barrier, s": spent[r]} for r in ranks})

# %% [markdown] victims
# Who waits long is a *victim*. In a profile of such a job three ranks of four show a long receive, and their owners
# look for a slow network. Note also what the numbers do not show: rank 2 waits less than ranks 0 and 3 and is not slow;
# it has more to do. And times of different ranks were never subtracted from each other: clocks of machines differ.
#
# Now all compute alike, and one *direction* of one link is slow: messages from rank 3 to rank 1 take five times as
# long. All receives were posted before the compute, so a send ends when its message has arrived, whoever is late.
# (Without that a send waits for its receiver, too, as in section 5, and a slow rank makes sends to it look slow.)

# %% guess slow link
guess = predict(
    "11.slow_link",
    "Rank 3 sends to rank 1 slowly. Rank 1's receive ends late. Whose own events show "
    "that the link is slow, and not that somebody was late?",
    whose=lesson.choice("rank 3's send", "rank 1's recv", "the barrier"),
)

# %% slow link
timeline = lesson.recorded(slow_link=(3, 1, 5.0))
took = {}
for event in timeline:
    if event["name"] == "send":
        pair = f"{event['rank']} to {event['peer']}"
        took.setdefault(pair, []).append(event["end"] - event["start"])
slowest = max(took, key=lambda pair: sorted(took[pair])[len(took[pair]) // 2])
guess.reveal(
    whose="rank 3's send" if slowest == "3 to 1" else "the barrier",
    because="a receive begins when its rank is ready, and then waits for a sender as "
    "well as for a wire. A send has start and end on one clock.",
)
lesson.bars(
    {pair: sum(every) / len(every) for pair, every in took.items()}, "seconds a send"
)

# %% [markdown] placement
# ## 31. Busy experts
#
# A rank can be slow because its experts are popular. Training pushes against that (unit 10: the bias). A deployed model
# meets whatever people ask: a long evening of mathematics, and a few experts bear it. Such an expert can be held more
# than once: a **redundant expert** stands on another GPU and takes an even part of its tokens. Its memory is the price.
# A place for one expert on a GPU is a **slot**.
#
# > **Facts: redundant experts**
# >
# > - DeepSeek-V3's prefilling unit: 4 nodes, 32 GPUs, 256 experts and 32 redundant ones. (source: DeepSeek-V3 report,
# >   arXiv 2412.19437, section 3.4)
#
# So 288 slots on 32 GPUs, 9 each. Here 64 experts, whose loads are drawn and not measured: most near 1,000 tokens, the
# busiest with 9,637. 16 GPUs, mean 5,377 tokens each.

# %% guess redundant
guess = predict(
    "11.redundant",
    "The best placement without redundant experts still has the busiest one on some "
    "GPU, with three others. At least how far above the mean? And with 16 redundant "
    "experts, one more slot on each GPU, well chosen?",
    without=lesson.number("without: times the mean", factor=1.1),
    redundant=lesson.number("with 16 redundant ones", factor=1.1),
)

# %% redundant
load = lesson.expert_loads()
rows = {spare: lesson.placed(load, 64 + spare, 16) for spare in (0, 16, 32)}
guess.reveal(
    without=rows[0]["busiest over mean"],
    redundant=rows[16]["busiest over mean"],
    because="9,637 and three small ones over 5,377: an expert in one slot cannot be "
    "shared. In several, its parts are small enough to fit beside others.",
)
lesson.table(rows, first="redundant experts")

# %% [markdown] redundant read
# Everybody waits for the busiest GPU, so 1.87 becoming 1.02 is a layer almost twice as fast, for a quarter more memory
# of experts. The next 16 win nothing. Whoever places experts needs two decisions, how many slots for which, and what
# stands beside what; 11.eplb asks for both. DeepSeek's EPLB repeats them as loads change (source:
# [deepseek-ai/EPLB](https://github.com/deepseek-ai/EPLB), eplb.py).
#
# ## 32. The whole model over ranks
#
# Unit 10's model, small: 8 experts in each of two layers. Ranks stand in a grid: *expert ranks* in a row share the
# experts, *replicas* stand below each other and hold the same.
#
# | | held by | gradient is summed over |
# |---|---|---|
# | experts | one expert rank of each replica | the replicas |
# | everything else | every rank | all ranks |
# | tokens | one rank | |
#
# The experts' gradients need no sum over a row: tokens of the whole row came to them. And the backward pass needs no
# new communication: the gradient of a dispatch is a combine with weights of one, and the gradient of such a combine is
# a dispatch. So a token travels four times in a step. Here 2 expert ranks and 2 replicas; the lab has 4 and 2.
#
# What may differ is the order of sums. A float32 sum of 1,024 terms of either sign is off by at most 4 × √1024 × 2⁻²⁴
# of its size, 7.6e-6: the course's tolerance, for the longest sum here. So each gradient of the first step may be off
# by that much from float64. A loss may be off by as much of itself, and by what the steps before it have moved
# wrongly.
#
# The experiment runs the training twice. The second time the replicas forget to sum the gradients of their experts.

# %% guess parallel
guess = predict(
    "11.expert_parallel",
    "The width is 32, in float32. Two expert ranks: half of all pairs of a token and "
    "an expert are at home. Bytes that cross for a pair in a step? And with the "
    "forgotten sum, over eight steps: how far off are losses, how far gradients?",
    bytes=lesson.number("bytes", factor=1.05),
    losses=lesson.choice("under 0.001", "over 0.01", label="losses off by"),
    gradients=lesson.choice("under 0.001", "over 0.01", label="gradients off by"),
)

# %% parallel
run = lesson.expert_parallel(expert_ranks=2, replicas=2, steps=8)
forgot = lesson.expert_parallel(
    expert_ranks=2, replicas=2, steps=8, sum_over_replicas=False
)
name = "2 x 2 ranks"
seen = [
    "over 0.01" if off > 0.01 else "under 0.001"
    for off in (forgot.off[name], forgot.gradients[name])
]
guess.reveal(
    bytes=run.bytes_of_a_pair,
    losses=seen[0],
    gradients=seen[1],
    because="4 × 32 × 4 × 1/2 = 256; counts add a little, uneven routing changes it. "
    "Losses hide a gradient of half the size: the step still goes downhill.",
)
lesson.table({**run.rows, "forgotten sum": forgot.rows[name]}, first="run")

# %% parallel weights
lesson.table({"weights": run.weights}, across=True)

# %% [markdown] parallel read
# The ranks are as near to float64 as one rank in float32 is, ten times nearer than the bound. Bits differ, because
# gradients were added in another order. With the forgotten sum the losses look right for a while; the first two are
# even within their bound. The gradients tell in the first step. So compare *gradients* of one step on the same
# weights, each by its own size, and only then losses.
#
# ## 33. The same script on a cluster
#
# The script asks its environment who it is: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`. torchrun sets them, on one machine as
# on a thousand; Slurm and Kubernetes start torchrun. The course's page `docs/scale.md` has the files. NCCL on NVIDIA
# and RCCL on AMD are both named `"nccl"` in torch. What grows with the number of ranks is section 19.
#
# ## What you have
#
# - Overlapped, a layer takes little more than the longer of all messages, or all computes with a first way out and a
#   last way back.
# - Who waits is a victim. Look at seconds for a token and for a byte, on one clock, over several steps.
# - Redundant experts, placed well, bring the busiest GPU near the mean.
# - Gradients are summed over those who hold the same weight; dispatch and combine are each other's backward pass.
#
# In the lab: 11.overlap, 11.straggler, 11.eplb, and the model over eight ranks with your dispatch and combine.

# %% [markdown] summary of the unit
# ## Summary
#
# - A rank is a process; what another needs is a message. When ranks hang, look for the one that did not send.
# - A ring all-reduce sends $2(n-1)/n$ of the tensor for each rank, in $2(n-1)$ steps. One rank finishes each piece, so
#   all hold the same bits.
# - A transfer takes alpha + bytes / bandwidth. Transfers on one link add up, and a step waits for its slowest link.
# - Alphas of a ring grow with n, of a tree with log n, messages of an all-to-all with n². On a mesh a ring uses one
#   cable of seven.
# - Counts go first, and every rank makes every call. FP8 goes out, bf16 comes back; a sum in the order of k has the
#   bits of one rank.
# - Overlapped, a layer takes little more than the longer of two times: all messages of the wire, or all computes with a
#   first way out and a last way back.
# - Who waits is the victim. Compare seconds for a token and for a byte, each by one clock, by the median over steps.
# - A redundant expert goes to the one whose load over its slots is largest.
#
# ## Read next
#
# - [DeepSeek-V3](https://arxiv.org/abs/2412.19437), sections 3.2 to 3.5, and
#   [Insights into DeepSeek-V3](https://arxiv.org/abs/2505.09343).
# - [DeepEP](https://github.com/deepseek-ai/DeepEP) and [mori](https://github.com/ROCm/mori): dispatch and combine on
#   both vendors. [EPLB](https://github.com/deepseek-ai/EPLB): where redundant experts go.
# - The NCCL user guide on point-to-point communication and environment variables; RCCL's usage tips.
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>8 ranks, 1 GiB: what does a ring all-reduce send for each rank?</summary>
#
# 1.75 GiB in 14 steps.
# </details>
#
# <details><summary>Which bandwidth of an H100's NVLink does a transfer see?</summary>
#
# 450 GB/s one way; the data sheet's 900 adds both directions.
# </details>
#
# <details><summary>Why does a dispatch take two exchanges?</summary>
#
# Nobody knows how many rows come before the sources say so.
# </details>
#
# <details><summary>Three ranks show long receives. Is the network slow?</summary>
#
# That does not follow. Look at sends, and at the compute for a token on the rank that does not wait.
# </details>
#
# <details><summary>The losses of a model over ranks leave those of one rank from the second step on. What is
# missing?</summary>
#
# The sum of gradients: of the experts' over their replicas, or of the others over all ranks.
# </details>
#
# **You have** a model over ranks, and a price for each of its transfers. Now open
# [lab 11](../labs/11_expert_parallelism.ipynb).

# %% end of overlap
lesson.sitting("11", 4)
