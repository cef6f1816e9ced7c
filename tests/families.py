"""Large families of tests, of which `w2w test` draws some cases where what they test has not changed.

A family is a parametrised test with the marker `drawn(of, keep)`: of each unit or kernel, or of all, `keep` cases
run. Which ones follows from the library's text, so that the same checkout runs the same cases, and the next change
others. Without --drawn, and where `gpu_utils.course.whole` says that something changed, all run.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Container, Iterable
from typing import NamedTuple

import pytest

from gpu_utils.course import whole
from tests import ROOT

OF = {
    "unit": lambda case: case[:2],
    "kernel": lambda case: case.rpartition("-")[0],
    "all": lambda case: "",
}
"""What the cases of a family are grouped by -> the group of a case, by the id that pytest gives its parameters."""


class Member(NamedTuple):
    """A case of a family: its node id and that of its parameters, and what its marker says."""

    test: str
    case: str
    of: str
    keep: int


def left_out(members: Iterable[Member], changed: Container[str], salt: str) -> set[str]:
    """The node ids of the cases that do not run.

    changed  parts of `whole.state` of which every case runs
    salt     decides which cases are drawn elsewhere
    """
    groups: dict[tuple[str, str], list[Member]] = defaultdict(list)
    for member in members:
        if not any(part in changed for part in whole.parts_of(member.test)):
            groups[member.test.partition("[")[0], OF[member.of](member.case)].append(member)
    found: set[str] = set()
    for group in groups.values():
        group.sort(key=lambda member: hashlib.sha256(f"{salt} {member.test}".encode()).digest())
        found |= {member.test for member in group[group[0].keep :]}
    return found


def members_among(items: Iterable[pytest.Item]) -> list[Member]:
    """The cases of families among what pytest collected."""
    marked = [(item, item.get_closest_marker("drawn")) for item in items if isinstance(item, pytest.Function)]
    return [Member(item.nodeid, item.callspec.id, *marker.args) for item, marker in marked if marker]


class Families:
    """The plugin of pytest that draws, and says at the end of how many, and why so many."""

    def __init__(self) -> None:
        self.said = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        members, changed = members_among(items), whole.changed(ROOT)
        out = left_out(members, changed, whole.state(ROOT)[whole.LIBRARY])
        items[:] = [item for item in items if item.nodeid not in out]
        self.said = (
            f"{len(members) - len(out):,} of {len(members):,} cases of large families ran: all of what changed since "
            f"{whole.RECORD} was written ({', '.join(sorted(changed)) or 'nothing'}) and some of the rest; "
            "`./w2w test --every` runs them all"
        )
        if (output := getattr(config, "workeroutput", None)) is not None:
            output["families"] = self.said

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.said = getattr(node, "workeroutput", {}).get("families", self.said)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(self.said)
