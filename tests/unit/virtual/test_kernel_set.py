"""Every kernel of the set, compiled for every target that it names and executed there, against its reference.

Each of its instructions must also say truly which registers it reads and writes.
"""

import pytest

from gpu_utils.kernelset import CASES, TARGETS, Run
from gpu_utils.kernelset.judge import complaint
from gpu_utils.virtual import virtual_gpu

from .operands import complaints

EVERY = [pytest.param(case, target, id=f"{case.name}-{target}") for case in CASES.values() for target in case.targets]


@pytest.mark.drawn("kernel", 1)
@pytest.mark.parametrize(("case", "target"), EVERY)
def test_the_kernel_agrees_with_its_reference(case, target):
    run = Run(target)
    with virtual_gpu(target) as gpu:
        case.body(run)
    assert run.results, "the case states nothing"
    wrong = [sentence for result in run.results if (sentence := complaint(result))]
    wrong += [sentence for launch in gpu.launches for sentence in complaints(launch.program, launch)]
    assert not wrong, "\n".join(wrong)


def test_the_set_has_at_least_forty_kernels_and_says_why_one_is_kept_from_a_target():
    assert len(CASES) >= 40
    assert [case.name for case in CASES.values() if set(case.targets) != set(TARGETS) and not case.why] == []
