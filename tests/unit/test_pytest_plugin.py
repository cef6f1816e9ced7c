"""`pytest --virtual-gpu`: a project's tests run as they are, on each target, and nothing happens without the option."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

TESTS = """
import pytest, torch, triton, triton.language as tl

HIP = torch.version.hip is not None
DEVICE = triton.runtime.driver.active.get_active_torch_device()

@triton.jit
def add(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_right(virtual_gpu_target):
    x = torch.ones(100, device=DEVICE)
    out = torch.empty_like(x)
    add[(1,)](x, out, 100, 128)
    assert (out == 2).all() and HIP == virtual_gpu_target.startswith("gfx")

def test_wrong():
    x = torch.ones(10, device="cuda")
    add[(1,)](x, torch.empty_like(x), 128, 128)
"""


FAULTS = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def total(x, out, n, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0))
    if ATOMIC:
        tl.atomic_add(out, part)
    else:
        tl.store(out, tl.load(out) + part)

@pytest.mark.parametrize("atomic", [True, False])
def test_programs_meet(atomic):
    x, out = torch.ones(256, device="cuda"), torch.zeros(1, device="cuda")
    total[(2,)](x, out, 256, 128, atomic)
    assert out.item() == 256

@pytest.mark.parametrize("make", [torch.zeros, torch.empty])
def test_nobody_wrote(make):
    x, out = torch.ones(128, device="cuda"), make(1, device="cuda")
    total[(1,)](x, out, 128, 128, False)
"""


def run(folder, *options, tests=TESTS):
    (folder / "test_foreign.py").write_text(tests)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "gpu_utils.pytest_plugin",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    # others' plugins cost each session seconds
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_each_target_has_a_session_with_counters_and_a_summary(tmp_path):
    done = run(tmp_path, "--virtual-gpu", "gfx942,sm_90", "--junitxml=out.xml", "--tb=line")
    assert done.returncode == 1
    assert "virtual GPUs: gfx942 exit code 1, sm_90 exit code 1" in done.stdout
    for target in ("gfx942", "sm_90"):
        (suite,) = ET.parse(tmp_path / f"out-{target}.xml").getroot()
        assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
        assert f"- virtual GPU {target} -" in done.stdout
    assert done.stdout.count("error of the virtual GPU: OutOfBounds 1") == 2
    assert done.stdout.count("2 launches") == 2
    assert "add[1, 1, 1]" in done.stdout


def test_with_xdist_and_a_choice_of_tests(tmp_path):
    done = run(
        tmp_path, "--virtual-gpu=gfx942", "-p", "xdist", "-n1", "-k", "right", "--virtual-gpu-sanitize=racecheck"
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert "1 launches" in done.stdout


def test_a_report_of_the_sanitizers_is_shown_with_both_sides(tmp_path):
    done = run(tmp_path, "--virtual-gpu=gfx942", "--virtual-gpu-sanitize", "--tb=short", tests=FAULTS)
    assert "2 failed, 2 passed" in done.stdout, done.stdout
    assert "tests that ended in an error of the virtual GPU: Race 1, UninitialisedGlobal 1" in done.stdout
    for test in ("test_programs_meet[False]", "test_nobody_wrote[empty]"):
        assert f"FAILED test_foreign.py::{test}" in done.stdout
    assert "Report(tool='initcheck', kernel='total', target='gfx942'" in done.stdout
    assert "byte offset 0 of out" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--virtual-gpu=gfx942", "--virtual-gpu-sanitize=nothing"], "nothing"),
        (["--virtual-gpu-sanitize"], "--virtual-gpu=gfx942"),
    ],
)
def test_a_wrong_option_says_what_would_do(tmp_path, options, words):
    done = run(tmp_path, *options)
    assert done.returncode == 4
    assert words in done.stderr + done.stdout


def test_the_plugin_imports_nothing_by_itself():
    code = "import sys, gpu_utils.pytest_plugin; print({'torch', 'triton', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
