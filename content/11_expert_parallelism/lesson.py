# %% [markdown] top
# # 11 Expert parallelism: ranks, collectives, dispatch
#
# **Afterwards you can** start ranks and read how they fail, and write the collectives that training lives on by hand.
#
# **You need** unit 01 (a training step) and unit 10 (experts). No GPU: ranks are processes on a CPU, and messages
# between them are real. NCCL, RCCL and HCCL need devices and do not run here; scripts on `torch.distributed` are the
# same.
#
# **Time**: sitting 1 takes about 35 minutes, with its predictions; its cells run in half a minute. Then lab 11.

# %% imports
import os
import time

import torch
import torch.distributed as dist

from gpu_utils import lesson, predict

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
# what tells them apart is the line at which each one is: three at the barrier, and one that is not.
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
# In the names of the figure, "C1" is piece 1 of rank 2, and "ABCD1" the sum of piece 1 over ranks 0 to 3.

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
# In the lab you write this ring, for any number of elements. One rule of it is hidden in the figure: a rank cannot
# send, and only then receive.
#
# ## 5. The deadlock
#
# `dist.send` is *blocking*: it returns when the message has left. Suppose every rank first sends to its neighbour on
# the right and then receives from the left. Somebody who knows MPI will say: a small message goes out at once, into a
# buffer, and a large one waits for the receiver. Here is 1 number, and 1 million.

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
# | algorithms | Ring, Tree, CollNet, NVLS, PAT | Ring, Tree; direct all-gather | Ring, Mesh, RHD, Pairwise, NHR |
# | added by a switch | yes: NVLS, on NVSwitch | no such entry | no such entry |
# | choose by hand | `NCCL_ALGO`, `NCCL_PROTO` | these; `RCCL_OVERRIDE_ALGO` | `HCCL_ALGO`, between servers only |
# | protocols | LL, LL128, Simple | LL, LL128, Simple; LL128 late on each chip | not named so |
# | who chooses | cost tables, tuner plugins | the same, tables for each chip | adaptive: product, size, servers |
#
# **Which algorithm?** The library decides at each call, from the size, the number of ranks and the topology. Small
# tensors want few messages (tree, halving), large ones want few bytes (ring); a full mesh of links, as in a node of
# eight MI300X, wants all links at once. Variables are for tests: what you force today is wrong after the next update.
#
# **Which protocol?** How do the GPUs tell each other that data has come? *Simple* writes data, then a flag, with a
# fence between: full bandwidth, slow to start. *LL* (low latency) puts a 4-byte flag beside every 4 bytes of data: no
# fence, half the bandwidth. *LL128* spends 8 bytes of each 128: 120 are data, 94%. It needs stores of 128 bytes that
# arrive whole. Whether they do is a matter of the chip and the links, so the library decides that, too.
#
# > **Facts: NCCL, RCCL, HCCL**
# >
# > - NCCL: `NCCL_ALGO` takes Ring, Tree, CollnetChain, CollnetDirect, NVLS (since 2.17), NVLSTree (since 2.18), PAT
# >   (since 2.23); unset, NCCL chooses by topology and architecture. (source: [NCCL environment
# >   variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html))
# > - NCCL: protocols LL, LL128, Simple; LL128 where it is not supported can corrupt data. (source: the same page,
# >   `NCCL_PROTO`)
# > - LL: 4 bytes of flag for 4 of data. LL128: lines of 128 bytes with one word of 8 for the flag. (source:
# >   NVIDIA/nccl, src/include/device.h, `ncclLLFifoLine`, `NCCL_LL128_DATAELEMS`)
# > - NVLS lets NVSwitch add, from NVLink 4 and Hopper on. (source: NCCL environment variables, `NCCL_NVLS_ENABLE`)
# > - RCCL: ring and tree algorithms. (source: [What is
# >   RCCL?](https://rocm.docs.amd.com/projects/rccl/en/latest/what-is-rccl.html)) `NCCL_ALGO` and `NCCL_PROTO` keep
# >   their names. (source: [RCCL environment
# >   variables](https://rocm.docs.amd.com/projects/rccl/en/latest/api-reference/env-variables.html))
# > - RCCL: in ROCm 7.0.2 MSCCL is on by default on MI300X, and MSCCL++ kernels do all-reduce and all-gather up to a
# >   threshold of 1 MB with `RCCL_ENABLE_MSCCLPP=1`. (source: [RCCL usage
# >   tips](https://rocm.docs.amd.com/projects/rccl/en/docs-7.0.2/how-to/rccl-usage-tips.html))
# > - RCCL: in ROCm 7.13 both have been removed. (source: [RCCL usage
# >   tips](https://rocm.docs.amd.com/projects/rccl/en/7.13.0-preview/how-to/rccl-usage-tips.html))
# > - RCCL 2.26.6: a direct all-gather on up to 16 nodes, for messages up to 4 MB; `RCCL_OVERRIDE_ALGO` and
# >   `RCCL_OVERRIDE_PROTO` force a choice, where `NCCL_ALGO` and `NCCL_PROTO` may not. (source: ROCm/rccl,
# >   CHANGELOG.md)
# > - RCCL: LL128 came to `gfx942` with 2.22.3 for ROCm 6.4.2 and to `gfx950` with 2.26.6 for ROCm 7.0.0; 112 channels
# >   by default for a node of eight `gfx950`. (source: ROCm/rccl, CHANGELOG.md)
# > - RCCL: with fewer than 8 of a node's MI300X, a collective reaches only a part of the bandwidth, since each pair has
# >   its own link. (source: RCCL usage tips)
# > - HCCL: Mesh, Ring, Double-Ring and Star inside of a server, chosen by the hardware and not by the user; between
# >   servers among others Ring, RHD (recursive halving-doubling) and NHR (nonuniform hierarchical ring). (source: [HCCL
# >   algorithms](https://www.hiascend.com/document/detail/en/canncommercial/800/hcclug/hcclug/hcclug_000006.html))
# > - HCCL: `HCCL_ALGO="level0:NA;level1:ring"`: level 0, inside of a server, can only be NA; setting it switches the
# >   adaptive choice off. (source:
# >   [HCCL_ALGO](https://www.hiascend.com/document/detail/en/canncommercial/800/apiref/envvar/envref_07_0079.html))
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
# So "zero SM" is possible where nothing is added. Before you read on:

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
copies = {}
for by_rank in (five_of, two_of):
    for name in by_rank[0]:
        labels = [label for of in by_rank for label in lesson.held(of[name])]
        copies[name.split(" of ")[0]] = all(len(label) == 2 for label in labels)
guess.reveal(
    gather=copies["all-gather"],
    to_all=copies["all-to-all"],
    scatter=copies["reduce-scatter"],
    reduce=copies["all-reduce"],
    because="a copy engine copies: one letter in the figures; a sum has several.",
)

# %% [markdown] zero units
# > **Facts: units that communication takes**
# >
# > - DeepSeek-V3 gave 20 of the H800's 132 SMs to communication. (source: arXiv 2412.19437, section 3.2.2)
# > - DeepEP V2: 4 to 6 SMs instead of 24 for training of V3's kind; pipeline and context parallelism with 0 SMs, by
# >   RDMA and by copy engines. (source: [DeepEP README](https://github.com/deepseek-ai/DeepEP))
# > - mori on eight MI300X: 307 GB/s for a dispatch in one node with 80 CUs; over two nodes 57 GB/s of RDMA with 32 CUs,
# >   63 with 80. (source: [mori README](https://github.com/ROCm/mori))
# > - NCCL: copy engines for AlltoAll, AllGather, Scatter and Gather over NVLink since 2.28, with
# >   `NCCL_CTA_POLICY_ZERO`; across the network AlltoAll and AllGather since 2.30.6. (source: [NCCL user guide, buffer
# >   registration](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/bufferreg.html))
# > - RCCL: `NCCL_CTA_POLICY=2` puts the AllGather on SDMA engines, tested on MI355X; ReduceScatter stays on kernels.
# >   (source: [RCCL SDMA
# >   AllGather](https://rocm.docs.amd.com/projects/primus/en/main/04-technical-guides/rccl-sdma-torchtitan.html))
#
# Both vendors go the same way: copies leave the units, sums stay or go into the switch.
#
# **You have** ranks, their failures, five collectives to the element, a ring with counted bytes, and the deadlock. In
# the lab: 11.ring_all_reduce, 11.hierarchical, 11.all_to_all_two_hop. Next: what a message costs on each link.

# %% first sitting ends
lesson.sitting("11", 1)
