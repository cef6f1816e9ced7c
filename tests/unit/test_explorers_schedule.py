"""The explorer of pipeline schedules, and its drawing: boxes as long as steps; idle time, bubble, memory in words."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from gpu_utils import explore
from gpu_utils.analytic.schedules import Run, actions_of
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.exercises.u12_pipeline_schedules.lesson_runs import scheduled
from gpu_utils.exercises.u12_pipeline_schedules.orders import WRITERS
from gpu_utils.ui.explore import schedule
from gpu_utils.ui.schedule_figure import schedule_figure

SVG = "{http://www.w3.org/2000/svg}"


def tree(picture):
    return ElementTree.fromstring(f"<all>{picture.html}</all>")


def boxes(picture, kind):
    """(x, y, width, height) of each box of a class, without those of the legend."""
    found = [box for box in tree(picture).iter(f"{SVG}rect") if box.get("class") == kind]
    return [
        box
        for box in ([float(one.get(side)) for side in ("x", "y", "width", "height")] for one in found)
        if box[1] > 25
    ]


def texts(picture):
    return [word.text for word in tree(picture).iter(f"{SVG}text")]


def test_a_box_is_as_long_as_its_step_and_says_kind_and_micro_batch():
    picture = schedule_figure({"1F1B": scheduled("1F1B", 2, 3, I=1.0, W=0.5)})
    forwards, backwards = boxes(picture, "odd"), boxes(picture, "even")
    assert len(forwards) == len(backwards) == 6
    (one,), (other,) = ({round(box[2], 1) for box in kind} for kind in (forwards, backwards))
    assert other / one == pytest.approx(1.5, rel=1e-2)
    assert min(box[0] for box in forwards) == 56
    assert [texts(picture).count(word) for word in ("F", "B")] == [7, 7]  # one of each in the legend


def test_a_backward_is_filled_and_its_halves_fill_half_of_a_box():
    whole, split = (schedule_figure({"": scheduled(name, 2, 3)}) for name in ("1F1B", "ZB-H1"))
    assert {box[3] for box in boxes(whole, "even")} == {27.0}
    assert {box[3] for box in boxes(split, "even")} == {13.5}
    assert {"I", "W"} <= set(texts(split))
    assert "its weight gradients" in texts(split)
    assert "its weight gradients" not in texts(whole)


def test_a_pair_is_one_framed_box_with_both_letters_and_later_stages_have_a_bar():
    run = scheduled("DualPipe", 4, 8)
    picture = schedule_figure({"": run})
    pairs = [step for steps in run.schedule.order for step in steps if len(actions_of(step)) == 2]
    later = [
        stage
        for rank, steps in enumerate(run.schedule.order)
        for step in steps
        for _, stage, _ in actions_of(step)
        if stage >= 4
    ]
    edges = [one for one in tree(picture).iter(f"{SVG}path") if one.get("class") == "edge"]
    assert len(edges) == len(pairs) + len(later) + 2  # and one of each in the legend
    assert "with a bar: the rank's next stage" in texts(picture)
    for (kind, _, micro), (other, _, second) in pairs:
        assert f"{kind}{micro}" in texts(picture)
        assert f"{other}{second}" in texts(picture)


def test_the_words_say_time_bubble_idle_and_memory_of_each_rank():
    words = schedule_figure({"a": scheduled("1F1B", 4, 8), "b": scheduled("ZBV", 2, 4)}, "s").words
    assert words == (
        "a: 33 s, bubble 27.3%; idle by rank: 9, 9, 9, 9; activations alive by rank: 4, 3, 2, 1. "
        "b: 25 s, bubble 4%; idle by rank: 1, 1; activations alive by rank: 2, 2."
    )


def test_runs_share_a_scale_and_fit_a_page():
    picture = schedule_figure({"long": scheduled("GPipe", 2, 8), "short": scheduled("GPipe", 2, 4)})
    long, *_, short = boxes(picture, "room")
    assert long[2] / short[2] == pytest.approx(27 / 15, rel=1e-2)
    (drawing,) = tree(picture).iter(f"{SVG}svg")
    assert float(drawing.get("viewBox").split()[2]) <= 1000


def test_nothing_to_draw_is_said():
    with pytest.raises(BadArgument, match="expected at least one run"):
        schedule_figure({})
    run = scheduled("GPipe", 1, 1)
    with pytest.raises(BadArgument, match="without a step"):
        schedule_figure({"empty": Run(run.schedule, (), ())})


@pytest.mark.parametrize("name", WRITERS)
def test_every_schedule_is_drawn_with_the_same_work_on_each_rank(name):
    run = schedule.run_of(name, 4, 8, 150, 50, 20, 100)
    assert list(run.busy) == pytest.approx([8 * 3] * 4)
    explorer = explore("schedule", name, second="GPipe", m=8)
    assert explorer.words.startswith(f"{name}: ")


def test_sliders_move_both_and_what_does_not_exist_is_a_sentence_above_the_last_picture():
    explorer = explore("schedule", second="DualPipe", p=4, m=8)
    before = explorer.words
    explorer.controls["link"].value = 50
    assert explorer.words != before
    before = explorer.words
    explorer.controls["p"].value = 5
    assert explorer.words == before
    assert "DualPipe of 5 ranks" in explorer.report.value
    explorer.controls["p"].value = 2
    assert 'alert"' not in explorer.report.value


@pytest.mark.parametrize(
    ("start", "error", "words"),
    [({"p": 9}, BadArgument, "p is 9"), ({"m": 1}, BadArgument, "m is 1"), ({"together": 40}, BadArgument, "50 to 100"),
     ({"second": "1f1b"}, UnknownName, "1F1B"), ({"second": "DualPipe", "m": 7}, BadArgument, "even")],
)  # fmt: skip
def test_a_start_that_no_slider_has_is_refused(start, error, words):
    with pytest.raises(error, match=words):
        explore("schedule", **start)
