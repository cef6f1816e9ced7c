"""Answers that are tile programs: lowered by TileLang for the chip of a case, and launched on its virtual chip.

An exercise of kind "tile" declares what its program gets and which tensors the kernel takes:

    Exercise(kind="tile", parameters=("T", "vendor", "M", "N"), targets=("sm_80", "gfx942", "ascend950"),
             call=Tiled(sizes=("M", "N"), tensors=_tensors), ...)

Lowering runs the learner's Python, launching does not: where a class is graded they are in two processes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gpu_utils.backends.tiling import launch_lowered
from gpu_utils.compiler.tilelang import Lowered, lower
from gpu_utils.errors import BadArgument, CompileFailed
from gpu_utils.grading.execute import learner_line
from gpu_utils.grading.exercise import Inputs
from gpu_utils.grading.own_code import refuse_extern, refuse_foreign
from gpu_utils.npu.session import active_ai_cores
from gpu_utils.virtual import active_gpu


@dataclass(frozen=True)
class Tiled:
    """`Exercise.call` for tile programs.

    sizes    names of the inputs that the program is called with, beside T and vendor
    tensors  inputs -> the kernel's tensors in the order of its parameters; the last one is the result, and its elements
             are NaN before the launch
    blocks   inputs -> how many blocks must be launched; None: as many as the program likes
    """

    sizes: tuple[str, ...]
    tensors: Callable[[Inputs], Sequence[Tensor]]
    blocks: Callable[[Inputs], int] | None = None

    def lowered(self, program: Callable[..., Any], inputs: Mapping[str, Any]) -> Lowered:
        """The program for the target and with the sizes of a case. Raises what `lower` raises, with the learner's line.

        What is still to be written, or is a name that no cell gives, is raised as it is: a check has words for it.
        """
        raised: list[tuple[type[Exception], str, str]] = []

        @functools.wraps(program)
        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                kernel = program(*args, **kwargs)
                refuse_extern(kernel)
                return kernel
            except Exception as problem:  # as text: no object of TVM may outlive the lowering
                kind = next((one for one in (NotImplementedError, NameError) if isinstance(problem, one)), Exception)
                raised.append((kind, str(problem), learner_line(problem)))
                raise

        try:
            return lower(watched, inputs["target"], **{name: inputs[name] for name in self.sizes})
        except CompileFailed as problem:
            if not raised:
                raise
            kind, said, line = raised[-1]
            if kind is not Exception:
                raise kind(said) from None
            raise CompileFailed(f"{problem}{f' ({line})' if line else ''}") from None

    def __call__(self, answer: Any, inputs: Inputs) -> Tensor:
        """What the kernel writes. `answer` is the program, or what was lowered of it in another process."""
        lowered = answer.lowered if isinstance(answer, Handed) else self.lowered(answer, inputs)
        if lowered.target != inputs["target"]:
            raise BadArgument(f"the program was lowered for {lowered.target}, expected {inputs['target']}")
        blocks = math.prod(lowered.grid)
        if self.blocks is not None and blocks != self.blocks(inputs):
            raise BadArgument(f"the program launches {blocks} blocks, expected {self.blocks(inputs)}")
        *given, out = self.tensors(inputs)
        out.fill_(float("nan"))
        launch(lowered, [*given, out])
        return out


@dataclass(frozen=True)
class Handed:
    """A lowered program as it comes from another process."""

    data: Any

    def __call__(self) -> None:
        """Nothing calls it: `Tiled` launches what it holds."""

    @property
    def lowered(self) -> Lowered:
        """Raises BadArgument for what is no lowered program."""
        try:
            return Lowered.from_data(self.data)
        except (AttributeError, KeyError, TypeError):
            raise BadArgument("the answer's process gave something else than a lowered program") from None


def launch(lowered: Lowered, tensors: Sequence[Tensor]) -> None:
    """Launch it on the virtual chip of the session. Raises BadArgument where the program has other tensors."""
    if len(lowered.tensors) != len(tensors):
        raise BadArgument(
            f"the tile program has {len(lowered.tensors)} tensors ({', '.join(lowered.tensors)}), "
            f"expected {len(tensors)}"
        )
    cores = active_ai_cores()
    if cores is None:
        launch_lowered(lowered, active_gpu(), tensors)
        return
    refuse_foreign(lowered.source, lowered.kernel)
    of_name = dict(zip(lowered.tensors, tensors, strict=True))  # the kernel has those that it uses, in its own order
    cores.launch(lowered.source, lowered.kernel, lowered.grid[0], [of_name[name] for name in lowered.parameters])
