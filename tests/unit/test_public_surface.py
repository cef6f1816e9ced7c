"""The public surface is small, lazy and complete."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import gpu_utils

PUBLIC = {
    "CHIPS",
    "bench",
    "challenge",
    "check",
    "compile_for",
    "explore",
    "hint",
    "listing",
    "predict",
    "probe",
    "progress",
    "solution",
    "virtual_gpu",
}


def test_the_public_names_are_these():
    assert set(gpu_utils.__all__) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_can_be_loaded_and_says_what_it_is(name):
    value = getattr(gpu_utils, name)
    assert value is not None
    if callable(value):
        assert value.__doc__


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="compile_for"):
        gpu_utils.chekc  # noqa: B018


def test_importing_the_library_loads_nothing_heavy():
    script = (
        "import sys, gpu_utils; print([m for m in ('torch', 'triton', 'IPython', 'numpy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_library_costs_under_three_tenths_of_a_second():
    def seconds(script):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", script], check=True)
        return time.perf_counter() - start

    # the least of several: the machine may be busy, the library may not
    assert min(seconds("import gpu_utils") - seconds("pass") for _ in range(5)) < 0.3
