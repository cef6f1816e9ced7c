"""GPT-2 in stages on real ranks: the gradients of every schedule are the whole model's."""

import pytest

from gpu_utils.analytic.schedules import Costs
from gpu_utils.errors import RankFailed, RanksHung
from gpu_utils.exercises.u12_pipeline_schedules.orders import schedule
from gpu_utils.exercises.u12_pipeline_schedules.own_pipeline import pipelined

LAYOUTS = {
    "1F1B": ("line", 1),
    "interleaved 1F1B": ("line", 2),
    "ZB-H1": ("line", 1),
    "ZBV": ("V", 1),
    "DualPipe": ("two ways", 1),
    "DualPipeV": ("V", 1),
}


def ordered(name):
    layout, v = LAYOUTS[name]
    return {"order": schedule(name, 4, 8, v=2).order, "layout": layout, "v": v}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_gradients_are_those_of_the_whole_model(name):
    found = pipelined(**ordered(name), padded=False, steps=1)
    assert found.within
    assert 0 < found.gradients < found.gradients_may / 4


def test_a_wrong_gradient_would_be_seen(monkeypatch):
    from gpu_utils.exercises.u12_pipeline_schedules.stages import Stage

    right = Stage.weight_gradients
    monkeypatch.setattr(Stage, "weight_gradients", lambda self, micro: None if micro == 3 else right(self, micro))
    assert not pipelined(**ordered("ZB-H1"), padded=False, steps=1).within


def test_losses_fall_alike_whatever_the_order():
    one, two = (pipelined(**ordered(name), padded=False, steps=6).losses for name in ("1F1B", "DualPipe"))
    assert one[-1] < one[0] - 0.2
    assert two == pytest.approx(one, abs=1e-4)


def test_steps_last_as_long_as_they_cost_and_begin_when_what_they_need_is_there():
    costs = Costs(F=0.01, I=0.01, W=0.01, link=0.002)
    found = pipelined(**ordered("1F1B"), F=0.01, I=0.01, W=0.01)
    ran, run = found.measured, found.simulated
    for steps, spans in zip(ran.schedule.order, ran.spans, strict=True):
        for step, (start, end) in zip(steps, spans, strict=True):
            assert end - start >= costs.of(step)
    assert ran.seconds >= run.seconds * 0.99
    assert ran.memory == run.memory == (4, 3, 2, 1)


def test_ranks_that_wait_for_each_other_are_named():
    order = [[("F", rank, 0), ("B", rank, 0), ("F", rank, 1), ("B", rank, 1)] for rank in range(2)]
    order[1] = [("F", 1, 1), ("B", 1, 1), ("F", 1, 0), ("B", 1, 0)]  # rank 0 waits for B of 0 before it sends 1
    with pytest.raises(RanksHung, match="did not come back within 2 s"):
        pipelined(order, 2, padded=False, steps=1, seconds=2)


def test_a_step_before_what_it_needs_is_a_sentence():
    order = [[("B", 0, 0), ("F", 0, 0)]]
    with pytest.raises(RankFailed, match="before the step that it needs"):
        pipelined(order, 1, padded=False, steps=1)
