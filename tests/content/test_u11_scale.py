"""The files of docs/scale.md are what they say: parsed, and the script started."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from torch.distributed.run import get_args_parser

ROOT = Path(__file__).parents[2]
FILES = ROOT / "gpu_utils/exercises/u11_expert_parallelism/files"
PAGE = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
SBATCH = (FILES / "train_scale.sbatch").read_text(encoding="utf-8")


def options(line: str):
    """What torchrun's own parser makes of a line."""
    words = shlex.split(line)
    return get_args_parser().parse_args(words[words.index("torchrun") + 1 :])


@pytest.mark.parametrize("line", [line for line in PAGE.splitlines() if line.startswith("torchrun ")])
def test_a_line_of_the_page_is_read_by_torchrun(line):
    assert options(line).training_script == "train_scale.py"


def test_the_batch_file_asks_for_one_task_a_node_and_as_many_ranks_as_gpus():
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", SBATCH, re.MULTILINE))
    line = next(line for line in SBATCH.splitlines() if line.startswith("srun torchrun"))
    found = options(line)
    assert asked["ntasks-per-node"] == "1"
    assert found.nproc_per_node == asked["gpus-per-node"]
    assert found.rdzv_backend == "c10d"
    assert found.training_script == "train_scale.py"


def test_the_job_of_kubernetes_is_a_pytorchjob_with_a_container_of_the_right_name():
    job = yaml.safe_load((FILES / "train_scale.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        assert container["name"] == "pytorch"
        assert str(container["resources"]["limits"]["nvidia.com/gpu"]) == job["spec"]["nprocPerNode"]
        assert options(shlex.join(container["command"])).training_script == "train_scale.py"


def test_torchrun_starts_the_script_on_two_ranks():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(FILES / "train_scale.py"), "--steps", "2"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert len(re.findall(r"^step \d: loss [\d.]+ over 2 ranks$", done.stdout, re.MULTILINE)) == 2
