"""The report: one file that needs nothing else, whatever a profile holds, and whatever kernels are named."""

from __future__ import annotations

import json
import random
import re
from html.parser import HTMLParser

import pytest

from gpu_utils.errors import UnknownName
from gpu_utils.profiling.bars import MOST, ROWS, timeline
from gpu_utils.profiling.busy import busy
from gpu_utils.profiling.comparing import compared
from gpu_utils.profiling.profile import LEFT_OUT, Device, Event, Origin, Profile
from gpu_utils.profiling.report import report
from tests.unit.profiling.sample import DEVICES, HOSTILE, many, training, wild

VOID = {"meta", "link", "br", "img", "input"}


class Page(HTMLParser):
    """Tags that are open, text by tag, attributes that name other files."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.outside, self.text, self.count = [], [], [], "", {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.outside += [value for name, value in attributes if name in ("src", "href", "action") and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text += data


def data_of(page):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON that a browser reads"))


def odd_profiles():
    bare = Event("kernel", "bare", device="0")
    yield "nothing", Profile()
    yield "counters alone", Profile([bare], [Origin("c.csv", "ncu", "csv")], {"0": DEVICES["nvidia"]})
    yield "one instant", Profile([Event("kernel", "k", 5, 5, "stream 7", "0")])
    yield "the host alone", Profile([Event("op", "aten::mm", 0, 10, "thread 1")])
    yield "an end before its start", Profile([Event("kernel", "k", 9, 5, "stream 7", "0")])
    yield "hours apart", Profile([Event("kernel", "k", at, at + 1, "stream 7") for at in (0, 10**14)])
    yield "unknown device", Profile([Event("kernel", "k", 0, 5, "", "Agent 4")], [], {"Agent 4": Device("")})


@pytest.mark.parametrize("name", [name for name, _ in odd_profiles()])
def test_any_profile_makes_a_page(name):
    page = Page(report(dict(odd_profiles())[name]))
    assert not page.wrong
    assert not page.open


def test_no_profile_however_wild_is_an_error():
    before = Profile()
    for seed in range(150):
        profile = wild(seed)
        page = report(profile, random.Random(seed).choice([None, "MI300X", "H20", "MI325X"]))
        Page(page.encode("utf-8", "replace").decode())
        if 'id="data"' in page:
            data_of(page)
        for one in busy(profile).devices:
            assert one.busy + sum(gap.ns for gap in one.gaps) == one.window
        assert all(one.by_calls + one.by_time == one.difference for one in compared(before, profile).changes)
        before = profile


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_the_page_is_one_file_that_asks_for_nothing(vendor):
    text = report(training(vendor))
    page = Page(text)
    assert not page.wrong
    assert not page.open
    assert [link for link in page.outside if not link.startswith(("#", "data:"))] == []
    assert not re.search(r"\b(url\(|@import|fetch\(|XMLHttpRequest|import\s*\()", text)
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg", "", text)  # a name space, which nothing loads


def test_names_of_kernels_are_text_wherever_they_stand():
    text = report(training("nvidia"))
    assert HOSTILE not in text
    page = Page(text)
    assert page.count["script"] == 2
    assert HOSTILE in page.text
    assert HOSTILE in data_of(text)["names"]
    assert "<b>)" not in text


def test_what_was_read_stands_there_with_tool_version_and_remarks():
    words = " ".join(Page(report(training("amd"))).text.split())
    assert "counters.csv : ncu, csv, 2026.1" in words or "counters.csv: ncu, csv, 2026.1" in words
    assert "were cut short" in words


def test_a_card_says_that_memory_or_compute_is_unknown_and_not_that_nothing_is():
    words = Page(report(training("nvidia", virtual=True))).text
    assert "Memory or compute: cannot be told;" in words
    assert "bank conflicts are 75 %" in words
    assert "What limits it cannot be told" not in words


def test_a_run_with_counters_is_not_called_busy():
    rows = [Event("kernel", "k", at, at + 50, "s", "0") for at in (0, 51)]
    words = " ".join(Page(report(Profile(rows, serial={"0"}))).text.split())
    assert "GPU 0: how busy it was cannot be told Kernels ran one at a time while counters were collected" in words
    assert "Longest gaps" not in words


def test_what_was_read_in_part_stands_at_the_top_and_what_was_left_out_is_no_title():
    cut = Origin("t.json", "torch.profiler", "Chrome trace", "", ("the file is cut short: 2 events read",))
    other = Origin("notes.txt", "no profiler", LEFT_OUT, "", ("left out: it is no profile",))
    words = " ".join(Page(report(Profile(origins=[cut, other]))).text.split())
    assert "Read in part: t.json (the file is cut short: 2 events read)." in words
    assert "Profile of t.json Read" in words
    assert "left out: it is no profile" in words


def test_a_virtual_gpu_is_said_to_be_one():
    assert "Virtual GPU" in report(training("nvidia", virtual=True))
    assert "Virtual GPU" not in report(training("nvidia"))


def test_findings_stand_with_evidence_and_sources():
    words = Page(report(training("nvidia"))).text
    for part in ("uncoalesced", "counters: load_sectors", "bank conflicts", "ncu --csv --page raw"):
        assert part in words
    assert "NVIDIA's A100 data sheet" in words


def test_the_roofline_has_its_kernels_or_says_why_not():
    assert report(training("nvidia")).count('class="spot ') == 3  # a copy has no operations, and no place
    assert "There is no roofline" in report(many(10))


def test_a_named_chip_gives_the_peaks_and_a_wrong_one_an_error():
    assert "Peaks are those of H100 SXM" in report(training("nvidia"), "H100")
    with pytest.raises(UnknownName):
        report(training("nvidia"), "H1000")


def test_many_events_are_merged_and_counted():
    profile = many(30_000)
    text = report(profile)
    bars = [bar for lane in data_of(text)["lanes"] for bar in lane["bars"]]
    assert len(bars) <= MOST
    assert sum(bar[5] for bar in bars) == 30_000
    assert "are merged with their neighbours" in text
    assert len(text) < 3_000_000


def test_few_events_are_all_there():
    line = timeline(training("nvidia"), [])
    assert (line.merged, line.hidden) == (0, 0)
    assert sum(len(lane["bars"]) for lane in line.data["lanes"]) == len(training("nvidia").events)


def test_what_is_nested_lies_below_and_too_deep_is_counted():
    events = [Event("op", f"op {depth}", depth, 100 - depth, "thread 1") for depth in range(9)]
    line = timeline(Profile(events), [])
    (lane,) = line.data["lanes"]
    assert lane["rows"] == ROWS["host"]
    assert line.hidden == 9 - ROWS["host"]
    assert [bar[2] for bar in lane["bars"]] == list(range(ROWS["host"]))


def test_lanes_come_with_the_gpu_first_and_streams_by_number():
    rows = [Event("kernel", "k", 0, 5, f"stream {number}", "0") for number in (20, 7, 100)]
    line = timeline(Profile([Event("op", "o", 0, 5, "thread 1", process=4), *rows]), [])
    assert [lane["label"] for lane in line.data["lanes"]] == [
        "GPU 0, stream 7",
        "GPU 0, stream 20",
        "GPU 0, stream 100",
        "host, process 4, thread 1",
    ]


def test_times_count_from_the_first_event_so_that_a_browser_keeps_every_ns():
    start = 1_700_000_000_123_456_789
    events = [Event("kernel", "k", start, start + 7, "s"), Event("kernel", "k", start + 9, start + 11, "s")]
    line = timeline(Profile(events), [])
    assert line.start == start
    assert [bar[:2] for bar in line.data["lanes"][0]["bars"]] == [[0, 7], [9, 2]]


def test_a_machine_with_hundreds_of_threads_does_not_fill_the_page():
    events = [Event("op", "o", 0, 5, f"thread {number}") for number in range(200)]
    line = timeline(Profile(events), [])
    assert len(line.data["lanes"]) == 40
    assert line.hidden == 160
