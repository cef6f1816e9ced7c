"""Described nodes: what a process sees, and what each rule finds."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.analytic.node import KEYS, describe, gfx_of
from gpu_utils.analytic.node_rules import findings
from gpu_utils.analytic.visibility import visible
from gpu_utils.errors import BadArgument, UnknownName, W2WError

EIGHT = {"chip": "MI300X", "gpus": 8, "processes": 8, "environment": {"NCCL_MIN_NCHANNELS": 112}}


def seen(vendor: str = "amd", **variables: str) -> tuple[int, ...]:
    return visible(variables, 8, vendor).gpus


def kinds(**description: object) -> list[str]:
    return [finding.kind for finding in findings(describe(EIGHT | description))]


def with_variables(**variables: object) -> list[str]:
    return kinds(environment=EIGHT["environment"] | variables)


def test_on_amd_the_two_layers_compose() -> None:
    assert seen(ROCR_VISIBLE_DEVICES="4,5,6,7", HIP_VISIBLE_DEVICES="2,0") == (6, 4)
    assert seen(ROCR_VISIBLE_DEVICES="4,5,6,7", CUDA_VISIBLE_DEVICES="3") == (7,)
    assert seen(ROCR_VISIBLE_DEVICES="4,5,6,7", HIP_VISIBLE_DEVICES="4,5") == ()


def test_hip_looks_at_cudas_variable_only_where_its_own_is_empty() -> None:
    assert seen(HIP_VISIBLE_DEVICES="6", CUDA_VISIBLE_DEVICES="1") == (6,)
    assert seen(HIP_VISIBLE_DEVICES="", CUDA_VISIBLE_DEVICES="1") == (1,)
    assert seen(HIP_VISIBLE_DEVICES="") == tuple(range(8))


def test_an_empty_list_of_the_layer_that_hides_hides_all() -> None:
    assert seen(ROCR_VISIBLE_DEVICES="") == ()
    assert seen("nvidia", CUDA_VISIBLE_DEVICES="") == ()


def test_nvidia_reads_one_variable_and_no_other() -> None:
    assert seen("nvidia", CUDA_VISIBLE_DEVICES="7,2") == (7, 2)
    assert seen("nvidia", HIP_VISIBLE_DEVICES="1", ROCR_VISIBLE_DEVICES="1") == tuple(range(8))


@pytest.mark.parametrize("text", ["4,9,5", "4,-1,5", "4, 8"])
def test_a_number_that_does_not_exist_ends_the_list(text: str) -> None:
    assert seen(ROCR_VISIBLE_DEVICES=text) == seen(HIP_VISIBLE_DEVICES=text) == (4,)
    assert seen("nvidia", CUDA_VISIBLE_DEVICES=text) == (4,)


@pytest.mark.parametrize("text", ["0,1", "3", "2,0,1", "", "1,-1,2"])
def test_torch_reads_cudas_variable_in_the_same_way(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    assert tuple(torch.cuda._parse_visible_devices()) == seen("nvidia", CUDA_VISIBLE_DEVICES=text)


def test_torch_takes_hips_variable_before_cudas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.2")
    monkeypatch.delenv("ROCR_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "6,2")
    expected = seen(HIP_VISIBLE_DEVICES="6,2", CUDA_VISIBLE_DEVICES="1")
    assert tuple(torch.cuda._parse_visible_devices()) == expected == (6, 2)


@pytest.mark.parametrize("text", ["0,0", "GPU-12ab", "0;1", "0,"])
def test_a_list_that_cannot_be_read_is_one_sentence(text: str) -> None:
    with pytest.raises(BadArgument, match="HIP_VISIBLE_DEVICES"):
        seen(HIP_VISIBLE_DEVICES=text)


def test_a_good_node_has_no_finding() -> None:
    assert kinds() == []
    assert kinds(chip="H100", environment={}) == []
    assert kinds(chip="RX 7900 XTX", gpus=1, processes=1, environment={}) == []


def test_an_instinct_chip_is_not_told_to_pass_for_another() -> None:
    assert kinds(built_for=["gfx90a", "gfx950"]) == []


@pytest.mark.parametrize(
    ("expected", "description"),
    [
        ("build", {"torch": "2.13.0+cu130"}),
        ("build", {"torch": "2.13.0+cpu"}),
        ("processes", {"processes": 1}),
        ("processes", {"use": [0, 1], "environment": {"HIP_VISIBLE_DEVICES": "0,1", "NCCL_MIN_NCHANNELS": 112}}),
        ("few-gpus", {"use": [0, 1], "processes": 2}),
        ("rocr-mask", {"each_process": {"ROCR_VISIBLE_DEVICES": "{rank}"}}),
        ("ordinal", {"each_process": {"HIP_VISIBLE_DEVICES": "{rank}"}}),
        ("wrong-gpus", {"use": list(range(7, -1, -1))}),
        ("ray", {"launcher": "ray"}),
        ("channels", {"environment": {}}),
        ("channels-foreign", {"chip": "H100"}),
        ("streams", {"overlap": True}),
        ("tuned-unused", {"tuned_gemms": True}),
        ("in-script", {"in_script": True, "environment": {"HIP_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}}),
        (
            "override-missing",
            {"chip": "RX 7900 XTX", "gpus": 1, "processes": 1, "environment": {}, "built_for": ["gfx90a", "gfx1101"]},
        ),
    ],
)
def test_a_rule_finds_what_it_is_for(expected: str, description: dict) -> None:
    assert expected in kinds(**description)


@pytest.mark.parametrize(
    ("expected", "variables"),
    [
        ("no-gpu", {"ROCR_VISIBLE_DEVICES": "4,5,6,7", "HIP_VISIBLE_DEVICES": "4,5,6,7"}),
        ("cut-list", {"HIP_VISIBLE_DEVICES": "0,1,2,3,4,5,6,8"}),
        ("both-variables", {"HIP_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "CUDA_VISIBLE_DEVICES": "0"}),
        ("composed", {"ROCR_VISIBLE_DEVICES": "7,6,5,4,3,2,1,0", "HIP_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}),
        ("override-wrong", {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}),
        ("override-wrong", {"HSA_OVERRIDE_GFX_VERSION": ""}),
        ("override-wrong", {"HSA_OVERRIDE_GFX_VERSION": "gfx942"}),
        ("override-needless", {"HSA_OVERRIDE_GFX_VERSION": "9.4.2"}),
        ("tuning", {"PYTORCH_TUNABLEOP_ENABLED": 1}),
        ("p2p", {"NCCL_P2P_DISABLE": 1}),
    ],
)
def test_a_rule_finds_its_variable(expected: str, variables: dict) -> None:
    assert expected in with_variables(**variables)


def test_an_override_for_a_chip_that_no_library_knows_is_fine_within_its_generation() -> None:
    laptop = {"target": "gfx1103", "gpus": 1, "processes": 1, "built_for": ["gfx90a", "gfx1100"]}
    for value, expected in (("11.0.0", []), ("11.0.1", ["override-wrong"]), ("9.0.10", ["override-wrong"])):
        found = findings(describe(laptop | {"environment": {"HSA_OVERRIDE_GFX_VERSION": value}}))
        assert [finding.kind for finding in found] == expected


def test_a_scheduler_mask_that_all_processes_share_is_no_fault() -> None:
    shared = {"use": [4, 5, 6, 7], "processes": 4, "environment": {"ROCR_VISIBLE_DEVICES": "4,5,6,7"}}
    assert not {"rocr-mask", "no-gpu", "wrong-gpus", "ordinal"} & set(kinds(**shared))


def test_actors_that_each_have_one_gpu_use_device_0_and_need_no_list_in_common() -> None:
    actors = {"launcher": "ray", "use": [2, 5], "processes": 2}
    masked = kinds(**actors, each_process={"HIP_VISIBLE_DEVICES": "{rank}"})
    assert "wrong-gpus" in masked  # GPUs 0 and 1 were not meant
    fitting = {
        "HIP_VISIBLE_DEVICES": "2",
        "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES": "1",
        "NCCL_MIN_NCHANNELS": 112,
    }
    assert kinds(**actors, environment=fitting) == ["few-gpus"]
    log_3 = kinds(**actors, each_process={"ROCR_VISIBLE_DEVICES": "{rank}", "HIP_VISIBLE_DEVICES": "0"})
    assert log_3[0] == "few-gpus"
    assert "rocr-mask" in log_3


def test_amds_variables_on_nvidia_are_named() -> None:
    found = findings(describe({"chip": "A100", "gpus": 2, "processes": 2, "environment": {"HIP_VISIBLE_DEVICES": "0"}}))
    assert [finding.kind for finding in found] == ["foreign-variable"]


def test_every_finding_says_where_it_comes_from() -> None:
    worst = {
        "torch": "2.13.0",
        "processes": 2,
        "launcher": "ray",
        "overlap": True,
        "environment": {"HSA_OVERRIDE_GFX_VERSION": "11.0.0", "NCCL_P2P_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "0,9"},
    }
    found = findings(describe(EIGHT | worst))
    assert len(found) == 4
    for finding in found:
        assert all((finding.found, finding.does, finding.advice, finding.source))


def test_the_number_of_a_target_is_read_as_rocm_writes_it() -> None:
    assert [gfx_of(text) for text in ("10.3.0", "9.0.10", "12.0.1", "", "9.4")] == [
        *("gfx1030", "gfx90a", "gfx1201"),
        *(None, None),
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "nothing"),
        ([1], "a list"),
        ({"gpu": 8}, "did you mean 'gpus'"),
        ({"gpus": "8"}, "gpus is text ('8')"),
        ({"gpus": True}, "gpus is true or false"),
        ({"gpus": 8}, "has no processes"),
        ({"gpus": 0, "processes": 1}, "gpus is 0"),
        ({"gpus": 8, "processes": 8, "chip": "MI300"}, "did you mean 'MI300X'"),
        ({"gpus": 8, "processes": 8}, "target is ''"),
        ({"gpus": 8, "processes": 8, "chip": "MI300X", "target": "gfx90a"}, "leave target out"),
        (EIGHT | {"launcher": "torchrunn"}, "did you mean 'torchrun'"),
        (EIGHT | {"use": [8]}, "GPUs 0 to 7"),
        (EIGHT | {"use": ["a"]}, "GPUs 0 to 7"),
        (EIGHT | {"use": []}, "one or more GPUs"),
        (EIGHT | {"use": [1, 1]}, "each once"),
        (EIGHT | {"built_for": [942]}, "targets such as gfx942"),
        (EIGHT | {"environment": {"HSA_OVERRIDE_GFX_VERSION": 11.0}}, "write its value in quotes"),
        (EIGHT | {"environment": None}, "environment is nothing"),
        (EIGHT | {"environment": {"HIP_VISIBLE_DEVICES": [0, 1]}}, "write its value in quotes"),
    ],
)
def test_a_description_that_is_not_understood_is_one_clear_sentence(data: object, said: str) -> None:
    with pytest.raises(W2WError) as refusal:
        describe(data)
    assert said in str(refusal.value)
    assert isinstance(refusal.value, (BadArgument, UnknownName))
    assert "\n" not in str(refusal.value)


def test_every_key_is_explained() -> None:
    assert all(meaning for meaning in KEYS.values())
