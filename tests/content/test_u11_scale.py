"""The files of docs/scale.md are what they say: parsed, and the script started; a run over ranks is that of one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from torch.distributed.run import get_args_parser

from gpu_utils.distributed import run_ranks
from gpu_utils.errors import RankFailed
from gpu_utils.exercises.u11_expert_parallelism.expert_parallel_ranks import ModelOnRanks
from gpu_utils.exercises.u11_expert_parallelism.own_expert_parallel import bounds, expert_parallel, trained_alone

ROOT = Path(__file__).parents[2]
FILES = ROOT / "gpu_utils/exercises/u11_expert_parallelism/files"
PAGE = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
SBATCH = (FILES / "train_scale.sbatch").read_text(encoding="utf-8")


def options(line: str):
    """What torchrun's own parser makes of a line."""
    words = shlex.split(line)
    return get_args_parser().parse_args(words[words.index("torchrun") + 1 :])


@pytest.mark.parametrize("line", [line for line in PAGE.splitlines() if line.startswith("torchrun --")])
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


def losses(ranks: int, steps: int, sequences: int) -> list[float]:
    """What the script prints on so many ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    of_all = ["--steps", str(steps), "--sequences", str(sequences // ranks)]
    done = subprocess.run(
        [*command, str(FILES / "train_scale.py"), *of_all],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert len(re.findall(r"^a rank holds \d+ weights, \d+ of them in experts$", done.stdout, re.MULTILINE)) == 1
    found = re.findall(rf"^step \d: loss ([\d.]+) over {ranks} ranks, [\d.]+ s$", done.stdout, re.MULTILINE)
    return [float(loss) for loss in found]


@pytest.mark.parametrize("ranks", [1, 2])
def test_torchrun_starts_the_script_and_more_ranks_have_the_losses_of_one(ranks):
    exact = trained_alone(ModelOnRanks.batches(3, 4), torch.float64)
    found = losses(ranks, steps=3, sequences=4)
    assert len(found) == 3
    for loss, right, bound in zip(found, exact.losses, bounds(exact), strict=True):
        assert abs(loss - right) <= bound + 1e-6  # six digits are printed


def test_the_model_over_ranks_has_the_losses_and_gradients_of_one_within_the_bounds():
    run = expert_parallel(expert_ranks=2, replicas=2, steps=3)
    assert run.within
    assert run.off["2 x 2 ranks"] <= run.may < 1e-4
    assert run.gradients["2 x 2 ranks"] <= run.gradients_may < 1e-5


def test_a_forgotten_sum_over_the_replicas_is_outside_the_bounds():
    run = expert_parallel(expert_ranks=2, replicas=2, steps=2, sum_over_replicas=False)
    assert not run.within
    assert run.gradients["2 x 2 ranks"] > 0.1
    assert run.off["2 x 2 ranks"] <= run.may, "two losses do not show it: that is why gradients are compared"


def test_expert_ranks_that_do_not_divide_are_named():
    with pytest.raises(RankFailed, match=r"3 expert ranks of 2 ranks for 8 experts, .* try 2"):
        run_ranks(lambda: ModelOnRanks(3).held, 2)
