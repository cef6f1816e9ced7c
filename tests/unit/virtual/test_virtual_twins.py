"""The comparison of tests/gpu/test_virtual_agrees.py itself, with a second virtual GPU in the place of the device."""

import pytest
import torch

from gpu_utils.kernelset import CASES, Run
from gpu_utils.virtual import virtual_gpu
from tests.gpu.test_virtual_agrees import DeviceRun, bits, compare


class VirtualDevice(DeviceRun):
    def __init__(self, target):
        super().__init__(target, "cpu")

    def launch(self, *args, **meta):
        with virtual_gpu(self.target):
            super().launch(*args, **meta)


@pytest.mark.parametrize("name", ["histogram", "rmsnorm", "tuples_as_arguments", "matmul_with_tensor_descriptors"])
def test_a_case_on_copied_tensors_gives_the_same_bits(name):
    moved, plain = VirtualDevice("sm_90"), Run("sm_90")
    CASES[name].body(moved)
    with virtual_gpu("sm_90"):
        CASES[name].body(plain)
    assert moved.texts
    assert len(moved.results) == len(plain.results) > 0
    assert all(compare(a.name, a.got, b.got)["same"] for a, b in zip(moved.results, plain.results, strict=True))


def test_views_of_one_storage_stay_views_of_one_storage():
    whole = torch.arange(12.0)
    storages = {}
    run = DeviceRun("sm_90", "cpu")
    first, second = (run._there(part, storages) for part in (whole[2:6], whole[4:].view(2, 4).T))
    assert len(storages) == 1
    first[2] = 100.0
    assert second[0, 0] == 100.0
    assert second.stride() == (1, 4)
    assert whole[4] == 4.0  # the original changes only when the launch is over


def test_a_difference_is_measured_and_nan_payloads_and_signs_of_zero_are_not():
    a, b = torch.tensor([1.0, 0.0, float("nan")]), torch.tensor([1.0, -0.0, float("nan")])
    b.view(torch.int32)[2] += 1
    assert compare("x", a, b)["same"]
    found = compare("x", torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    assert (found["elements_apart"], found["largest_difference"], found["largest_relative"]) == (1, 2.0, 0.5)
    assert torch.equal(bits(torch.tensor([3], dtype=torch.int64)), torch.tensor([3]))
