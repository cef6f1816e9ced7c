"""The wheel alone: what the virtual GPUs import is declared, and the course's packages are an extra."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OTHER_NAMES = {"pyyaml": "yaml", "py-rattler": "rattler", "import-linter": "importlinter", "jupyterlab": "jupyterlab"}
LEFT_OUT = sorted(
    OTHER_NAMES.get(name, name.replace("-", "_"))
    for name in (Requirement(line).name for extra in ("course", "dev", "classroom") for line in EXTRAS[extra])
    if name != "pytest"  # brings the plugin in
)
WITHOUT = f"""
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LEFT_OUT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
AUTHOR = '''
import sys
sys.modules['ziglang'] = None
import torch, triton, triton.language as tl
from gpu_utils import virtual_gpu
from gpu_utils.compiler.clang import compile_cpp
import gpu_utils.pytest_plugin, gpu_utils.virtual.cuda, gpu_utils.virtual.sanitize.watch

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {
  .reg .u64 %p; .reg .u32 %v;
  ld.param.u64 %p, [out]; mov.u32 %v, 7; st.global.u32 [%p], %v; ret;
}
"""
out = torch.zeros(1, dtype=torch.int32)
with virtual_gpu("sm_90") as gpu:
    gpu.load(PTX).launch("k", 1, 1, [out])
assert out.item() == 7
try:
    compile_cpp("__global__ void k(int *x) { x[0] = 4711; }", "gfx942")
except Exception as error:
    print(type(error).__name__, error)
'''


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_kernel_authors_need_few_packages():
    names = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert names == {"torch", "triton", "numpy", "platformdirs"}
    assert not names & {Requirement(line).name for line in EXTRAS["course"]}


def test_the_virtual_gpus_work_without_the_courses_packages():
    done = run(AUTHOR)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CompilerMissing compiling C++ kernels needs clang")
    assert "pip install warp-to-wavefront[hip]" in done.stdout


def test_the_command_says_how_to_get_the_course():
    done = run("from gpu_utils.cli import main; main()")
    assert done.returncode == 1
    assert done.stderr.startswith("w2w: this is the command of the course, which needs typer; run `pip install warp-")
    assert done.stderr.count("\n") == 1
