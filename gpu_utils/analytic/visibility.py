"""Which physical GPUs a process sees, from its environment variables.

NVIDIA has one layer: CUDA_VISIBLE_DEVICES. AMD has two, and each numbers the GPUs anew. The ROCm runtime reads
ROCR_VISIBLE_DEVICES. HIP then reads HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES where that is unset or empty, and
counts among what the first layer left. A number that does not exist ends a list: what stands right of it is dropped.
Sources: ROCR-Runtime amd_filter_device.cpp; ROCm clr rocclr/device/rocm/rocdevice.cpp; torch.cuda (2.13.0)
_parse_visible_devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_utils.errors import BadArgument

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
VARIABLES = (ROCR, HIP, CUDA)


@dataclass(frozen=True)
class Layer:
    """What one variable did. asked: the numbers in it; before, after: physical GPUs; dropped: what was not there."""

    variable: str
    asked: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def dropped(self) -> tuple[int, ...]:
        return self.asked[len(self.after) :]

    def __str__(self) -> str:
        text = f"{self.variable}={','.join(map(str, self.asked))} counts among {len(self.before)} GPUs and leaves "
        text += f"GPU {', '.join(map(str, self.after))}" if self.after else "none"
        return f"{text}; there is no number {self.dropped[0]}, and it ends the list" if self.dropped else text


@dataclass(frozen=True)
class Visible:
    """gpus: physical numbers in the order in which the process numbers them from 0. layers: how it came to that."""

    gpus: tuple[int, ...]
    layers: tuple[Layer, ...]


def visible(environment: Mapping[str, str], gpus: int, vendor: str) -> Visible:
    """The GPUs of a node with `gpus` of them that a process with this environment sees.

    vendor  "amd" or "nvidia"; on NVIDIA the variables of AMD mean nothing
    Errors: BadArgument for a list that is not made of whole numbers, or names one twice.

    >>> visible({"ROCR_VISIBLE_DEVICES": "4,5,6,7", "HIP_VISIBLE_DEVICES": "1,0"}, 8, "amd").gpus
    (5, 4)
    >>> visible({"HIP_VISIBLE_DEVICES": "6", "CUDA_VISIBLE_DEVICES": "0"}, 8, "amd").gpus
    (6,)
    >>> visible({"CUDA_VISIBLE_DEVICES": "4,9,5"}, 8, "nvidia").gpus
    (4,)
    """
    seen = tuple(range(gpus))
    layers = []
    for variable in _read(environment, vendor):
        asked = _numbers(variable, environment[variable])
        there = next((place for place, number in enumerate(asked) if not 0 <= number < len(seen)), len(asked))
        layers.append(Layer(variable, asked, seen, tuple(seen[number] for number in asked[:there])))
        seen = layers[-1].after
    return Visible(seen, tuple(layers))


def _read(environment: Mapping[str, str], vendor: str) -> Sequence[str]:
    """The variables that count, in order. Empty, ROCR_ and NVIDIA's CUDA_ hide all; HIP takes empty for unset."""
    if vendor == "nvidia":
        return [CUDA] if CUDA in environment else []
    upper = [name for name in (HIP, CUDA) if environment.get(name)]
    return [ROCR] * (ROCR in environment) + upper[:1]


def _numbers(variable: str, text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")] if text else []
    wrong = next((word for word in words if not word.removeprefix("-").isdecimal()), None)
    if wrong is not None:
        raise BadArgument(f"{variable} holds {wrong!r}; expected numbers of GPUs with commas between, as in 0,1")
    numbers = tuple(map(int, words))
    if len(set(numbers)) < len(numbers):
        raise BadArgument(f"{variable}={text} names a GPU twice; name each once")
    return numbers
