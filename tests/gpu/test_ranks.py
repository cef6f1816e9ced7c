"""Ranks on GPUs: NCCL or RCCL under the same functions, on one device and on all that there are."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from gpu_utils.course.sources import load_solution
from gpu_utils.distributed import run_ranks
from gpu_utils.exercises.u11_expert_parallelism.expert_parallel_ranks import ModelOnRanks
from gpu_utils.exercises.u11_expert_parallelism.own_expert_parallel import (
    TERMS,
    bounds,
    furthest,
    share,
    trained_alone,
)
from tests.conftest import needs_a_gpu


def worlds():
    """1, and all GPUs of this machine where there are several."""
    return sorted({1, max(1, torch.cuda.device_count())})


def reduced(x):
    x = x.cuda()
    total = x.clone()
    dist.all_reduce(total)
    return {"backend": dist.get_backend(), "sum": total.cpu(), "device": torch.cuda.current_device()}


def around(x):
    """What the left neighbour of a ring has, in one batch, as NCCL and RCCL want it."""
    n, me = dist.get_world_size(), dist.get_rank()
    x, got = x.cuda(), torch.empty_like(x, device="cuda")
    if n == 1:
        return x.cpu()
    ops = [dist.P2POp(dist.isend, x, (me + 1) % n), dist.P2POp(dist.irecv, got, (me - 1) % n)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return got.cpu()


@pytest.mark.parametrize("world", worlds())
def test_an_all_reduce_on_gpus_is_the_sum(world):
    needs_a_gpu()
    x = torch.randn(world, 1000)
    found = run_ranks(reduced, world, each=[{"x": row} for row in x], seconds=120, device="cuda")
    for rank, value in enumerate(found.values):
        assert value["backend"] == "nccl"
        assert value["device"] == rank
        assert torch.equal(value["sum"], found.values[0]["sum"])
        assert torch.allclose(value["sum"].double(), x.double().sum(0), atol=1e-5)


@pytest.mark.parametrize("world", worlds())
def test_a_batch_of_sends_and_receives_goes_around(world):
    needs_a_gpu()
    x = torch.randn(world, 1000)
    found = run_ranks(around, world, each=[{"x": row} for row in x], seconds=120, device="cuda")
    for rank, value in enumerate(found.values):
        assert torch.equal(value, x[rank - 1])


def test_the_cpu_collective_of_the_lab_agrees_where_a_gpu_is_in_use():
    """Ranks on a CPU start from a clean process here: the GPU's state does not survive a fork."""
    needs_a_gpu()
    torch.ones(1, device="cuda")
    ring, x = load_solution("11.ring_all_reduce"), torch.randn(3, 100)
    found = run_ranks(lambda x: ring(x, dist.group.WORLD), 3, each=[{"x": row} for row in x], seconds=120)
    for value in found.values:
        assert torch.allclose(value.double(), x.double().sum(0), atol=1e-5)


@pytest.mark.parametrize("world", worlds())
def test_the_model_of_the_lesson_trains_over_ranks_on_gpus(world):
    """Losses are those of one process in float64; a rank's gradients too."""
    needs_a_gpu()
    given = ModelOnRanks.batches(2, 4 * world)
    exact = trained_alone(given, torch.float64)

    def trained():
        ranks = ModelOnRanks(device=f"cuda:{torch.cuda.current_device()}")
        losses = [ranks.step(*given[0])]
        first = ranks.gradients()
        return [*losses, ranks.step(*given[1])], first

    for losses, first in run_ranks(trained, world, seconds=120, device="cuda").values:
        assert all(abs(a - b) <= most for a, b, most in zip(losses, exact.losses, bounds(exact), strict=True))
        assert furthest(first, exact.first) <= share(TERMS)
