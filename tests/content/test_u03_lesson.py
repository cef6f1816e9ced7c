"""What the figure of lesson 03 says of visible devices is what the rules say."""

from __future__ import annotations

import re
from pathlib import Path

from gpu_utils.analytic.visibility import visible

LESSON = Path(__file__).parents[2] / "content/03_porting_to_rocm/lesson.py"


def test_the_figure_of_the_two_layers_says_what_the_rules_say():
    figure = re.search(r"(?s)# physical GPU .*?```", LESSON.read_text("utf-8"))[0]
    ends = [int(number) for number in re.findall(r"cuda:\d is GPU (\d)", figure)]
    set_here = dict(re.findall(r"(\w+_VISIBLE_DEVICES)=([\d,]+)", figure))
    assert tuple(ends) == visible(set_here, gpus=4, vendor="amd").gpus == (3, 1)
