import matplotlib
import matplotlib.pyplot as plt
import pytest

from gpu_utils.errors import BadArgument
from gpu_utils.ui.curves import curves


@pytest.fixture
def drawn(monkeypatch):
    matplotlib.use("agg")
    found = []
    monkeypatch.setattr(plt, "show", lambda: found.append(plt.gcf().axes[0]))
    return found


def test_numbers_lie_over_steps_from_1_pairs_over_their_own_and_levels_are_named(drawn):
    curves({"train": [9.0, 5.0, 4.0], "validation": [(0, 9.5), (3, 4.5)]}, "nats", levels={"ln V": 6.9})
    train, validation, level = drawn[0].lines
    assert train.get_xydata().tolist() == [[1, 9], [2, 5], [3, 4]]
    assert validation.get_xydata().tolist() == [[0, 9.5], [3, 4.5]]
    assert set(level.get_ydata()) == {6.9}
    assert [words.get_text() for words in drawn[0].get_legend().get_texts()] == ["train", "validation", "ln V"]
    assert drawn[0].get_ylabel() == "nats"


def test_a_scale_is_logarithmic_on_request_and_begins_at_0_where_curves_come_near_it(drawn):
    curves({"norm": [1.0, 100.0]}, "norm", log=True)
    curves({"rate": [0.001, 1.0]}, "rate")
    assert drawn[0].get_yscale() == "log"
    assert drawn[1].get_ylim()[0] == 0


@pytest.mark.parametrize("nothing", [{}, {"train": []}])
def test_no_numbers_are_refused_in_one_sentence(nothing):
    with pytest.raises(BadArgument, match="no numbers"):
        curves(nothing, "nats")
