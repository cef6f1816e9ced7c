"""Shared by all tests: folders apart from the learner's own, and what to do when a tool of this machine is missing."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from gpu_utils.course.paths import Course
from gpu_utils.course.suite import unit_of
from gpu_utils.grading.walls import bwrap as walls
from tests import ROOT
from tests.families import Families

if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is imported: workers side by side share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def unavailable(reason: str) -> NoReturn:
    """Skip the test with this reason; where W2W_CI=1 says that everything must be there, fail it."""
    if os.environ.get("W2W_CI") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="append", default=[], help="only the tests of this unit, for example 03")
    parser.addoption("--drawn", action="store_true", help="of large families some cases, where nothing changed")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--drawn"):
        config.pluginmanager.register(Families())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --unit the tests whose file or case is of that unit, and no others; first those that mostly wait."""
    if units := config.getoption("--unit"):
        config.hook.pytest_deselected(items=[item for item in items if unit_of(item.nodeid) not in units])
        items[:] = [item for item in items if unit_of(item.nodeid) in units]
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)  # at the end nothing would run beside them


def pytest_collection_finish() -> None:
    """Take what the imports and the tests' own objects made, nearly a million, out of every garbage collection.

    Decoded kernels are kept, tens of thousands of closures: what is young is collected less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session", autouse=True)
def _folders_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Progress and run records of tests, also of processes that tests start, go to a temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("W2W_DATA", str(tmp_path_factory.mktemp("data")))
        patch.setenv("TRITON_CACHE_DIR", str(Course(ROOT).triton_cache))
        yield


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of an installed Chromium or Chrome."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    unavailable("no Chromium on PATH; install it (on Debian: apt install chromium)")


@pytest.fixture(scope="session")
def clang() -> None:
    """The C++ compiler of the extra `hip`. A run of CI that leaves the extra out on purpose skips what needs it."""
    _need("ziglang", "the wheel ziglang is not installed (the extra `hip`)")


@pytest.fixture(scope="session")
def nvrtc() -> None:
    """NVIDIA's compiler of the extra `nvrtc`; its absence is a failure in CI where W2W_EXTRAS names the extra."""
    from gpu_utils.compiler.nvrtc import missing

    if absent := missing():
        reason = f"{', '.join(absent)} not installed (the extra `nvrtc`)"
        if "nvrtc" in os.environ.get("W2W_EXTRAS", "").split(","):
            unavailable(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def tilelang(clang: None, nvrtc: None) -> None:
    """TileLang and Z3 of the extra `tilelang`, and the compilers that its sources go to, under the same rule."""
    _need("tilelang", "TileLang is not installed (the extra `tilelang`)")
    _need("z3", "z3-solver is not installed (the extra `tilelang`)")


@pytest.fixture(scope="session")
def nbgrader() -> None:
    """nbgrader of the extra `classroom`, under the same rule."""
    _need("nbgrader", "nbgrader is not installed (the extra `classroom`)")


def _need(module: str, reason: str) -> None:
    if importlib.util.find_spec(module) is not None:
        return
    if os.environ.get("W2W_EXTRAS") == "":
        pytest.skip(reason)
    unavailable(reason)


@pytest.fixture(scope="session")
def bwrap() -> None:
    """A bubblewrap that can make a sandbox here."""
    if reason := walls.unavailable():
        unavailable(reason)


@pytest.fixture(autouse=True)
def _needs_a_gpu(request: pytest.FixtureRequest) -> None:
    """A test marked gpu runs where torch sees a device."""
    if request.node.get_closest_marker("gpu") is not None:
        needs_a_gpu()


def needs_a_gpu() -> None:
    """Skip where torch sees no device; where W2W_GPU=1 promises one, its absence is a failure."""
    from gpu_utils.backends import backend

    if reason := backend("gpu").unavailable():
        if os.environ.get("W2W_GPU") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
