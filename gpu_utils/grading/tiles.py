"""Answers that are tile programs: lowered by TileLang for the chip of a case, and launched on its virtual chip.

An exercise of kind "tile" declares what its program gets and which tensors the kernel takes:

    Exercise(kind="tile", parameters=("T", "vendor", "M", "N"), targets=("sm_80", "gfx942", "ascend950"),
             call=Tiled(sizes=("M", "N"), tensors=_tensors), ...)

Lowering runs the learner's Python, launching does not: where a class is graded they are in two processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gpu_utils.compiler.tilelang import Lowered, lower
from gpu_utils.errors import BadArgument, CompileFailed
from gpu_utils.grading.exercise import Inputs
from gpu_utils.npu.session import active_ai_cores


@dataclass(frozen=True)
class Tiled:
    """`Exercise.call` for tile programs.

    sizes    names of the inputs that the program is called with, beside T and vendor
    tensors  inputs -> the kernel's tensors in the order of its parameters; the last one is the result, and its elements
             are NaN before the launch
    """

    sizes: tuple[str, ...]
    tensors: Callable[[Inputs], Sequence[Tensor]]

    def lowered(self, program: Callable[..., Any], inputs: Mapping[str, Any]) -> Lowered:
        """The program for the target and with the sizes of a case. Raises what `lower` raises.

        What is still to be written, or is a name that no cell gives, is raised as it is: a check has words for it.
        """
        try:
            return lower(program, inputs["target"], **{name: inputs[name] for name in self.sizes})
        except CompileFailed as problem:
            if isinstance(problem.__cause__, (NotImplementedError, NameError)):
                raise problem.__cause__ from None
            raise

    def __call__(self, answer: Any, inputs: Inputs) -> Tensor:
        """What the kernel writes. `answer` is the program, or the Lowered that it gave elsewhere."""
        lowered = answer if isinstance(answer, Lowered) else self.lowered(answer, inputs)
        *given, out = self.tensors(inputs)
        out.fill_(float("nan"))
        launch(lowered, [*given, out])
        return out


def launch(lowered: Lowered, tensors: Sequence[Tensor]) -> None:
    """Launch it on the virtual chip of the session, which is of the target that it was lowered for.

    Raises BadArgument where the kernel has other parameters than the tensors.
    """
    if len(lowered.tensors) != len(tensors):
        raise BadArgument(
            f"the kernel has {len(lowered.tensors)} parameters ({', '.join(lowered.tensors)}), expected {len(tensors)}"
        )
    cores = active_ai_cores()
    if cores is not None:
        of_name = dict(zip(lowered.tensors, tensors, strict=True))  # TileLang leaves out what the kernel does not use
        cores.launch(lowered.source, lowered.kernel, lowered.grid[0], [of_name[name] for name in lowered.arguments])
        return
    from gpu_utils.backends.tiling import launch_lowered
    from gpu_utils.virtual import active_gpu

    launch_lowered(lowered, active_gpu(), tensors)
