"""03.launch_env: other right answers pass, and mistakes are told in the words of the doctor."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gpu_utils.analytic.node import describe
from gpu_utils.analytic.node_rules import findings
from gpu_utils.exercises.u03_porting_to_rocm.launch_env import EXERCISE
from gpu_utils.exercises.u03_porting_to_rocm.launch_env_rules import launch_env_reference
from gpu_utils.grading.exercise import Case

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"


def judged(value: Any, **params: Any) -> tuple[str, str]:
    """kind and sentence for an answer to a case; two empty texts when it is right."""
    case = Case("", **params)
    inputs = EXERCISE.inputs(case, torch.Generator())
    found = EXERCISE.judge(case, inputs, value)
    return ("", "") if found is None else (found.kind, found.detail)


@pytest.mark.parametrize(
    ("environment", "params"),
    [
        ({CUDA: "1"}, {"target": "gfx1100", "gpus": 2, "use": [1]}),
        ({ROCR: "1"}, {"target": "gfx1100", "gpus": 2, "use": [1]}),
        ({ROCR: "1", HIP: "0"}, {"target": "gfx1100", "gpus": 2, "use": [1]}),
        ({}, {"target": "gfx90a", "gpus": 4, "use": [0, 1, 2, 3]}),
        ({"TORCH_NCCL_HIGH_PRIORITY": "0", HIP: " 2, 3"}, {"target": "gfx90a", "gpus": 4, "use": [2, 3]}),
        ({HIP: "", CUDA: "3,2"}, {"target": "gfx90a", "gpus": 4, "use": [3, 2], "inherited": {HIP: "0"}}),
        ({ROCR: "1,2,3", HIP: "0,2"}, {"target": "gfx90a", "gpus": 4, "use": [1, 3], "inherited": {ROCR: "1,2,3"}}),
        ({"NCCL_P2P_DISABLE": "0"}, {"target": "sm_80", "gpus": 2, "use": [0, 1]}),
    ],
)
def test_other_environments_that_do_the_same_pass(environment: dict[str, str], params: dict[str, Any]) -> None:
    assert judged([environment for _ in params["use"]], **params) == ("", "")


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ({HIP: "1"}, "type", "expected a list of dicts"),
        ([[HIP]], "type", "expected a list of dicts"),
        ([{HIP: 1}], "type", "names and values are text"),
        ([], "processes:0", "no process is started"),
        ([{HIP: "one"}], "list", "holds 'one'"),
        ([{HIP: "1"}, {HIP: "1"}], "processes", "2 processes for 1 GPU"),
        ([{HIP: "0"}], "wrong-gpus:0", "process 0 sees GPU 0, meant was 1"),
        ([{HIP: "7"}], "no-gpu", "no GPU is seen"),
        ([{}], "wrong-gpus:0,1", "no variable hides anything"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(value: Any, kind: str, said: str) -> None:
    found, sentence = judged(value, target="gfx1100", gpus=2, use=[1])
    assert found == kind
    assert said in sentence
    assert "\n" not in sentence


ALL = {"target": "gfx942", "gpus": 2, "use": [0, 1]}


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ({"NCCL_MIN_NCHANNELS": "64"}, "value:NCCL_MIN_NCHANNELS", "is '64'; the lesson's fact for this node says 112"),
        ({"NCCL_MIN_NCHANNELS": "112", "OMP_NUM_THREADS": "8"}, "extra:OMP_NUM_THREADS", "leave it out"),
        ({"NCCL_MIN_NCHANNELS": "112", "GPU_MAX_HW_QUEUES": "2"}, "extra:GPU_MAX_HW_QUEUES", "leave it out"),
    ],
)
def test_a_value_of_ones_own_or_a_setting_too_many_is_told(value: dict[str, str], kind: str, said: str) -> None:
    found, sentence = judged([value, value], **ALL)
    assert found == kind
    assert said in sentence


def test_every_process_needs_the_settings() -> None:
    assert judged([{"NCCL_MIN_NCHANNELS": "112"}, {}], **ALL)[0] == "missing:NCCL_MIN_NCHANNELS"


def test_the_mask_of_the_scheduler_may_not_be_changed() -> None:
    params = {"target": "gfx90a", "gpus": 8, "use": [0], "inherited": {ROCR: "4,5"}}
    assert judged([{ROCR: "0"}], **params)[0] == "scheduler"


def test_the_reference_leaves_the_doctor_nothing_to_say() -> None:
    inputs = EXERCISE.inputs(Case("", target="gfx942", gpus=8, use=list(range(8)), overlap=True), torch.Generator())
    environment = launch_env_reference(inputs["node"])[0]
    node = describe({"chip": "MI300X", "gpus": 8, "processes": 8, "overlap": True, "environment": environment})
    assert findings(node) == []
