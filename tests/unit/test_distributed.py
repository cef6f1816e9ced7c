"""Ranks: real processes; what they send is counted, a slow wire is slow, and a rank that fails is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.distributed import Wires, run_ranks
from gpu_utils.errors import BadArgument, RankFailed
from gpu_utils.exercises.on_ranks import on_ranks
from gpu_utils.grading.check import check
from gpu_utils.grading.compare import compare
from gpu_utils.grading.exercise import Case, Exercise, Misconception
from gpu_utils.grading.program import Part, Program
from gpu_utils.grading.sandbox import run_apart
from gpu_utils.grading.walls.runner import Walls, run_walled

WORLD = 3


def right(rank: int) -> int:
    return (rank + 1) % WORLD


def summed(**given):
    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x)
    return x


def ended_with(function, seconds: float = 10.0, world: int = WORLD) -> RankFailed:
    with pytest.raises(RankFailed) as found:
        run_ranks(function, world, seconds=seconds)
    return found.value


def below(pid: int) -> list[int]:
    """Processes whose parent is `pid`, zombies too."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found.append(int(name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_each_rank_gets_its_own_arguments_and_those_of_all():
    def add(x, y):
        print("rank", dist.get_rank(), "of", dist.get_world_size())
        return x + y

    found = run_ranks(add, WORLD, each=[{"x": 10 * rank} for rank in range(WORLD)], shared={"y": 1})
    assert found.values == [1, 11, 21]
    assert found.output == [f"rank {rank} of {WORLD}\n" for rank in range(WORLD)]


def test_a_rank_has_one_thread_and_can_train():
    def train():
        w = torch.randn(64, 64, requires_grad=True)
        (torch.randn(64, 64) @ w).square().sum().backward()
        dist.all_reduce(w.grad)
        return torch.get_num_threads(), float(w.grad.abs().sum())

    torch.randn(300, 300).matmul(torch.randn(300, 300, requires_grad=True)).sum().backward()  # threads of its own
    values = run_ranks(train, 2).values
    assert values[0][0] == 1
    assert values[0][1] == values[1][1] > 0


def test_what_is_sent_is_counted_for_each_pair():
    def talk():
        rank = dist.get_rank()
        x = torch.arange(float(sum(range(1, WORLD + 1))))
        y = torch.empty(WORLD * (rank + 1))
        dist.all_to_all_single(y, x, [rank + 1] * WORLD, list(range(1, WORLD + 1)))
        work = dist.isend(torch.zeros(5, dtype=torch.float64), right(rank))
        dist.recv(torch.empty(5, dtype=torch.float64), (rank - 1) % WORLD)
        work.wait()
        dist.all_reduce(torch.ones(2))
        return y

    found = run_ranks(talk, WORLD)
    expected = [[0 if s == d else 4 * (d + 1) + 40 * (d == right(s)) for d in range(WORLD)] for s in range(WORLD)]
    assert found.sent == expected
    assert found.calls == [{"all_to_all_single": 1, "send": 1, "recv": 1, "all_reduce": 1}] * WORLD
    assert torch.equal(found.values[1], torch.tensor([1.0, 2.0] * WORLD))


def test_every_collective_that_gloo_has_passes_through():
    def all_of_them():
        rank = dist.get_rank()
        x = torch.full((2,), float(rank))
        dist.broadcast(x, 1)
        parts = [torch.empty(2) for _ in range(WORLD)]
        dist.all_gather(parts, x + rank)
        whole = torch.empty(2 * WORLD)
        dist.all_gather_into_tensor(whole, x + rank)
        piece = torch.empty(2)
        dist.reduce_scatter_tensor(piece, whole)
        objects: list = [None] * WORLD
        dist.all_gather_object(objects, {"rank": rank})
        swapped = [torch.empty(1) for _ in range(WORLD)]
        dist.all_to_all(swapped, [torch.full((1,), 10.0 * rank + other) for other in range(WORLD)])
        dist.barrier()
        group = dist.new_group([0, 1])
        y = torch.ones(1)
        if rank < 2:
            dist.all_reduce(y, group=group)
        return {
            "parts": torch.cat(parts),
            "whole": whole,
            "piece": piece,
            "objects": objects,
            "swapped": swapped,
            "y": y,
        }

    values = run_ranks(all_of_them, WORLD).values
    gathered = torch.tensor([1.0, 1.0, 2.0, 2.0, 3.0, 3.0])
    for rank, value in enumerate(values):
        assert torch.equal(value["parts"], gathered)
        assert torch.equal(value["whole"], gathered)
        assert torch.equal(value["piece"], torch.full((2,), 3.0 * (rank + 1)))
        assert value["objects"] == [{"rank": other} for other in range(WORLD)]
        assert [float(part) for part in value["swapped"]] == [10.0 * other + rank for other in range(WORLD)]
    assert [float(value["y"]) for value in values] == [2.0, 2.0, 1.0]


def test_a_slow_wire_can_be_hidden_behind_work():
    def exchange(busy):
        x, y = torch.ones(3 * WORLD), torch.empty(3 * WORLD)
        begin = time.monotonic()
        work = dist.all_to_all_single(y, x, async_op=True)
        issued = time.monotonic() - begin
        time.sleep(busy)
        work.wait()
        return issued, time.monotonic() - begin, float(y.sum())

    found = run_ranks(exchange, WORLD, shared={"busy": 0.4}, wires=Wires(latency=0.3, slow={(0, 1): 3.0}))
    for rank, (issued, total, gives) in enumerate(found.values):
        assert gives == 3 * WORLD
        assert issued < 0.25
        assert total > (0.89 if rank in (0, 1) else 0.39)
        (event,) = found.events[rank]
        assert event["issued"] < event["waited"] <= event["returned"]
    assert found.values[2][1] < 0.85, "the slow link is between ranks 0 and 1"


def test_messages_on_a_slow_wire_keep_their_order_and_share_it():
    def talk():
        rank, world = dist.get_rank(), dist.get_world_size()
        works = [dist.isend(torch.tensor([float(n)]), (rank + 1) % world) for n in range(3)]
        begin, got = time.monotonic(), []
        for _ in range(3):
            x = torch.empty(1)
            dist.recv(x, (rank - 1) % world)
            got.append(float(x))
        for work in works:
            work.wait()
        return got, time.monotonic() - begin

    for got, seconds in run_ranks(talk, 2, wires=Wires(latency=0.1)).values:
        assert got == [0.0, 1.0, 2.0]
        assert seconds > 0.28


@pytest.mark.parametrize("wires", [None, Wires(latency=0.01)])
def test_a_work_may_be_waited_for_twice(wires):
    def exchange():
        y = torch.empty(WORLD)
        work = dist.all_to_all_single(y, torch.ones(WORLD), async_op=True)
        work.wait()
        work.wait()
        return float(y.sum())

    assert run_ranks(exchange, WORLD, wires=wires).values == [3.0] * WORLD


@pytest.mark.parametrize("wires", [None, Wires(latency=0.05)])
def test_a_message_may_be_asked_for_until_it_is_there(wires):
    def ask():
        x, other = torch.full((4,), float(dist.get_rank())), torch.zeros(4)
        to = (dist.get_rank() + 1) % WORLD
        works = [dist.isend(x, to), dist.irecv(other, (dist.get_rank() - 1) % WORLD)]
        asked = 0
        while not all(work.is_completed() for work in works):
            asked += 1
            time.sleep(0.001)
        for work in works:
            work.wait()
        return asked, float(other[0])

    found = run_ranks(ask, WORLD, wires=wires)
    assert [value for _, value in found.values] == [2.0, 0.0, 1.0]
    if wires:
        assert all(asked > 2 for asked, _ in found.values)
    events = found.events[0]
    assert all(event["issued"] < event["done"] <= event["returned"] for event in events)


def test_asking_whether_a_collective_has_ended_is_told_to_wait():
    def ask():
        x = torch.zeros(WORLD)
        work = dist.all_to_all_single(x, torch.ones(WORLD), async_op=True)
        while not work.is_completed(): pass  # fmt: skip  # noqa: E701  on one line: that is where it hangs

    assert "call wait()" in str(ended_with(ask, seconds=1.5))


def test_links_between_nodes_are_slower():
    wires = Wires(latency=1.0, seconds_per_byte=0.5, nodes=(0, 0, 1), across=4.0, slow={(0, 1): 2.0})
    assert wires.seconds(1, 0, 2) == 2.0
    assert wires.seconds(0, 1, 2) == 4.0
    assert wires.seconds(0, 2, 2) == 8.0
    assert wires.seconds(1, 1, 2) == 0.0


def test_a_rank_that_raises_is_named_with_its_line_and_traceback():
    def fails():
        if dist.get_rank() == 1:
            raise ValueError("no such expert")
        return summed()

    problem = ended_with(fails)
    assert problem.rank == 1
    assert str(problem).startswith("rank 1 of 3 failed: ValueError: no such expert (line ")
    assert 'raise ValueError("no such expert")' in str(problem)
    assert "Traceback" in problem.trace
    assert problem.trace in "\n".join(problem._render_traceback_())


@pytest.mark.parametrize("how", ["exit", "signal"])
def test_a_rank_that_dies_is_named(how):
    def dies():
        if dist.get_rank() == 2:
            os._exit(7) if how == "exit" else os.kill(os.getpid(), signal.SIGKILL)
        return summed()

    problem = ended_with(dies)
    assert problem.rank == 2
    assert str(problem).startswith("rank 2 of 3 died")


def test_ranks_that_all_exit_without_a_word_are_not_waited_for():
    def leave():
        os._exit(0)

    began = time.monotonic()
    assert "rank 0 of 3 died before it returned" in str(ended_with(leave, seconds=60.0))
    assert time.monotonic() - began < 20


def test_ranks_end_with_the_process_that_started_them(tmp_path):
    pids = tmp_path / "pids"
    script = (
        "import os, time\nfrom gpu_utils.distributed import run_ranks\n"
        f"def f():\n    open({str(pids)!r}, 'a').write(f'{{os.getpid()}} {{os.getppid()}}\\n')\n    time.sleep(99)\n"
        "run_ranks(f, 2)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    until = time.monotonic() + 60
    while time.monotonic() < until and (not pids.exists() or pids.read_text().count("\n") < 2):
        time.sleep(0.05)
    process.kill()
    process.wait()
    started = {int(pid) for line in pids.read_text().splitlines() for pid in line.split()}
    assert len(started) == 3, "two ranks and their agent"
    until = time.monotonic() + 10
    while time.monotonic() < until and any(map(alive, started)):
        time.sleep(0.05)
    assert not any(map(alive, started))


def test_a_rank_that_hangs_is_named_with_the_line_where_it_is():
    def hangs():
        while dist.get_rank() == 1:
            time.sleep(0.01)
        return summed()

    begin = time.monotonic()
    problem = ended_with(hangs, seconds=3.0)
    assert time.monotonic() - begin < 10
    assert "did not come back within 3 s" in str(problem)
    assert "rank 1 at line" in str(problem)
    assert "time.sleep(0.01)" in str(problem) or "while dist.get_rank() == 1" in str(problem)


def test_ranks_that_give_different_shapes_are_told_apart():
    def unequal():
        dist.all_reduce(torch.ones(3 + dist.get_rank()))

    problem = ended_with(unequal)
    assert "rank 0 called all_reduce of 12 bytes" in str(problem)


def test_a_rank_that_leaves_early_is_named():
    def early():
        return 0 if dist.get_rank() == 1 else summed()

    problem = ended_with(early)
    assert "rank 1 had returned already" in str(problem)
    assert "rank 1 called nothing" in str(problem)


def test_what_cannot_be_handed_over_is_said():
    assert "returned a function that cannot be handed over" in str(ended_with(lambda: lambda: 0))


def test_arguments_must_fit_the_world():
    with pytest.raises(BadArgument, match="arguments for 1 ranks, expected one set for each of 2"):
        run_ranks(summed, 2, each=[{}])
    with pytest.raises(BadArgument, match="GPUs"):
        run_ranks(summed, torch.cuda.device_count() + 1, device="cuda")


def test_nothing_is_left_behind():
    before = set(below(os.getpid()))

    def boom():
        if dist.get_rank() == 0:
            raise ValueError
        time.sleep(60)

    ended_with(boom)
    ended_with(lambda: time.sleep(60), seconds=2.0)
    run_ranks(summed, WORLD)
    until = time.monotonic() + 5
    while time.monotonic() < until and set(below(os.getpid())) - before:
        time.sleep(0.05)
    assert set(below(os.getpid())) <= before


def test_where_a_gpu_is_in_use_the_ranks_start_from_a_clean_process(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    factor = 3.0
    found = run_ranks(lambda x: float(summed()) * factor + x, 2, each=[{"x": 1.0}, {"x": 2.0}])
    assert found.values == [4.0, 5.0]


# --- exercises ------------------------------------------------------------------------------------------------------


def shifted(x):
    """Each rank gets its left neighbour's tensor."""
    got = torch.empty_like(x)
    work = dist.isend(x, (dist.get_rank() + 1) % dist.get_world_size())
    dist.recv(got, (dist.get_rank() - 1) % dist.get_world_size())
    work.wait()
    return got


def to_the_left(x):
    got = torch.empty_like(x)
    work = dist.isend(x, (dist.get_rank() - 1) % dist.get_world_size())
    dist.recv(got, (dist.get_rank() + 1) % dist.get_world_size())
    work.wait()
    return got


def _reference(each):
    return [each[rank - 1]["x"].double() for rank in range(len(each))]


SHIFTED = Exercise(
    id="99.shifted",
    title="One to the right",
    parameters=("x",),
    kind="host",
    ranks=True,
    inputs=lambda case, generator: {
        "each": [{"x": torch.randn(case["n"], generator=generator)} for _ in range(case["world"])]
    },
    call=on_ranks(seconds=10),
    reference=_reference,
    judge=lambda case, inputs, value: compare(_reference(**inputs), value["ranks"], EXACT),
    cases=(Case("three ranks", world=3, n=4), Case("two", world=2, n=5)),
    fresh=lambda rng: Case("sizes nobody chose", world=3, n=rng.randrange(2, 9)),
    misconceptions=(Misconception("to_the_left", to_the_left, "The other way round."),),
    hints=("a", "b", "c"),
    explanation="",
    dtype=lambda inputs: None,
    seconds=20.0,
)

SOURCE = """
import torch
import torch.distributed as dist

def shifted(x):
    got = torch.empty_like(x)
    work = dist.isend(x, (dist.get_rank() + 1) % dist.get_world_size())
    dist.recv(got, (dist.get_rank() - 1) % dist.get_world_size())
    work.wait()
    return got
"""


def find(_exercise_id: str) -> Exercise:
    return SHIFTED


def report(source: str, walls: Walls | None = None):
    program = Program((Part("cell 5", source),))
    runner = run_apart(program, find) if walls is None else run_walled(program, walls)
    return check(SHIFTED, None, runner=runner)


def test_an_answer_runs_on_ranks_in_a_notebook():
    assert check(SHIFTED, shifted).passed


def test_a_wrong_answer_on_ranks_gets_its_hint():
    found = check(SHIFTED, to_the_left)
    assert not found.passed
    assert "The other way round." in found.hint


def test_an_answer_runs_on_ranks_from_the_command_line():
    found = report(SOURCE)
    assert found.passed, found.headline


def test_an_answer_runs_on_ranks_behind_walls(bwrap):
    with Walls() as walls:
        found = report(SOURCE, walls)
        assert found.passed, found.headline
        hung = report(SOURCE.replace("work.wait()", "import time; time.sleep(99)"), walls)
        assert "did not come back" in hung.headline


def test_an_unwritten_answer_on_ranks_is_not_started():
    def unwritten(x):
        raise NotImplementedError("99.shifted is yours to write")

    assert check(SHIFTED, unwritten).status == "not started"
    with pytest.raises(NotImplementedError, match=r"99\.shifted is yours to write"):
        run_ranks(unwritten, 2, shared={"x": torch.zeros(1)})


def test_an_answer_that_changes_its_input_is_told():
    def changes(x):
        got = shifted(x)
        x += 1
        return got

    found = check(SHIFTED, changes)
    assert not found.passed
    assert "has changed its argument x" in found.headline


def test_a_rank_of_an_answer_that_fails_is_in_the_report():
    def fails(x):
        raise ValueError("not today")

    assert "ValueError: not today" in check(SHIFTED, fails).headline
