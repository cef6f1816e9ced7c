"""The course's C++ by clang and by NVIDIA's own compiler: executed on the same inputs it gives the same bits.

What differs is stated: CUDA has no shuffles and votes without _sync any more, so a file that has them is HIP's. For a
comparison NVRTC gets them as macros that say what the course's header says to clang.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch

from gpu_utils import exercises, virtual_gpu
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import CompileFailed, W2WError
from gpu_utils.exercises.u03_porting_to_rocm.hipify_device import placed
from gpu_utils.exercises.u03_porting_to_rocm.hipify_project import cuda_project
from gpu_utils.grading import cpp
from tests import ROOT

FOLDER = ROOT / "gpu_utils" / "exercises"
TARGETS = ("sm_80", "sm_90")


class Launch(NamedTuple):
    """How a kernel of a file is launched; `arguments` draws them from a generator, tensors are compared after it."""

    kernel: str
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    arguments: Callable[[torch.Generator], list]


def _normal(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    return lambda g: torch.randn(*shape, generator=g)


def _zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[torch.Generator], torch.Tensor]:
    return lambda _: torch.zeros(*shape, dtype=dtype)


def _draws(*parts) -> Callable[[torch.Generator], list]:
    """Arguments: functions of the generator, and numbers as they are."""
    return lambda g: [part(g) if callable(part) else part for part in parts]


_INT = torch.int32
_MOVED = [
    Launch(name, (2, 2), (32, 8), _draws(_normal(64, 64), _zeros(64, 64), 64))
    for name in ("direct", "tile_of_32", "tile_of_33")
]
_VALUES = Launch("many_values", 1, 256, _draws(lambda g: torch.rand(256 * 96, generator=g), _zeros(256 * 96), 3))
_FORTY = Launch("broadcast", 1, 64, _draws(_normal(64), _zeros(64), 40))
_WAVE = Launch("broadcast", 1, 64, _draws(_normal(64), _zeros(64)))
_SQUARE = Launch("square", 1, 64, _draws(_normal(64), _zeros(64)))
_POWER = Launch("exp2_all", 1, 64, _draws(_normal(64), _zeros(64)))
_LOCK = Launch("count_all", 1, 64, _draws(_zeros(1, dtype=_INT), _zeros(1, dtype=_INT)))
_VOTES = Launch("outliers", 1, 64, _draws(lambda g: 2 * _normal(64)(g), _zeros(2, dtype=_INT), _zeros(2, dtype=_INT)))
_PREFIX = Launch("prefix", 1, 64, _draws(_normal(64), _zeros(64)))
_ROW_SUM = Launch("row_sum", 3, 256, _draws(_normal(3, 256), _zeros(3)))
_ROW_MAX = Launch("row_max", 3, 256, _draws(_normal(3, 256), _zeros(3)))


def _of_step() -> list[Launch]:
    array, weight = _normal(32, 64), _normal(64, 64)
    over = {
        "activation": _draws(array, _zeros(32, 64), 32, 64, 0),
        "loss_gradient": _draws(array, array, _zeros(32, 64), 32, 64, 0.25, 0),
        "update": _draws(array, array, 32, 64, 0.5, 0),
    }
    product = _draws(array, weight, _zeros(32, 64), 64, 64, 0)
    found = [
        Launch(f"{name}__{fault}", 4, 128, arguments)
        for name, arguments in over.items()
        for fault in ("sound", "uncoalesced", "spills", "low_occupancy")
    ]
    found += [
        Launch(f"{name}__{fault}", (4, 2), 128, product)
        for name in ("forward", "weight_gradient")
        for fault in ("sound", "bank_conflicts", "spills", "low_occupancy")
    ]
    return found + [
        Launch(f"transpose__{fault}", (2, 1), 128, _draws(array, _zeros(64, 32), 32, 64))
        for fault in ("sound", "uncoalesced", "bank_conflicts", "low_occupancy")
    ]


def _places(g: torch.Generator) -> torch.Tensor:
    return torch.randperm(64, generator=g).to(_INT)


def _pieces(g: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 1 << 20, (256,), generator=g, dtype=_INT)


def _looked_up(g: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 4096, (64,), generator=g, dtype=_INT)


_TABLE = (
    ("banks", [Launch("look_up", 1, 64, _draws(_looked_up, _zeros(64)))]),
    ("branch", [Launch("branch", 1, 64, _draws(lambda g: _looked_up(g) % 2, _normal(64)))]),
    ("transpose", _MOVED),
    ("bounds bounds_2 bounds_8", [_VALUES]),
    ("broadcast_active broadcast_all broadcast_mask", [_FORTY]),
    ("mask_32 mask_64", [_WAVE]),
    ("guarded guarded_both", [_SQUARE]),
    ("inline_fenced inline_ptx", [_POWER]),
    ("lock_each lock_turns", [_LOCK]),
    ("step", _of_step()),
    ("tile_pieces", [Launch("tile_pieces", 1, 64, _draws(_places, 1, _places, 1, _pieces, _zeros(256, dtype=_INT)))]),
    ("neighbour", [Launch("neighbour", 1, 48, _draws(_normal(48), _zeros(48)))]),
    ("outliers outliers_32", [_VOTES]),
    ("prefix prefix_31", [_PREFIX]),
    ("row_sum row_sum_32 row_sum_segments", [_ROW_SUM]),
    ("warp_count warp_count_32 warp_count_64", [_ROW_MAX]),
)
LAUNCHES: dict[str, list[Launch]] = {name: launches for names, launches in _TABLE for name in names.split()}
"""Kernel file -> its launches. warp_count_64 writes past its array where a warp has 32 lanes: by both compilers."""

_VOTE_NAMES, _SHUFFLES = ("ballot", "any", "all"), ("", "_up", "_down", "_xor")
WITHOUT_SYNC = (
    *(f"__{name}(p)=__{name}_sync(__activemask(),p)" for name in _VOTE_NAMES),
    *(f"__shfl{name}(...)=__shfl{name}_sync(__activemask(),__VA_ARGS__)" for name in _SHUFFLES),
)
"""What gpu_utils/compiler/include/w2w_gpu.h says to clang, as macros."""

OF_HIP = (
    *("neighbour", "outliers", "outliers_32", "prefix", "prefix_31", "row_sum", "row_sum_32", "row_sum_segments"),
    *("warp_count", "warp_count_32", "warp_count_64"),
)
REFUSED = ("warp_size_constant",)
FILES = {path.stem: path for path in sorted(FOLDER.glob("*/kernels/*.cu"))}
"""Kernel file of the lessons, by its name -> where it is."""

ANSWERS = ("02.converge", "02.transpose", "03.ballot", "03.lane_id", "03.warp_reduce", "07.fix_race")


def unit(name: str) -> str:
    """The number of the unit that a kernel file belongs to."""
    return FILES[name].parts[-3][1:3]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("W2W_CACHE", str(tmp_path / "cache"))


def ended(module, target: str, launch: Launch, shared: int = 0) -> list[torch.Tensor] | str:
    """The tensors after the launch, or the name of the error that ended it."""
    arguments = launch.arguments(torch.Generator().manual_seed(7))
    with virtual_gpu(target) as gpu:
        try:
            gpu.load(module).launch(launch.kernel, launch.grid, launch.block, arguments, shared=shared)
        except W2WError as problem:
            return type(problem).__name__
    return [each for each in arguments if isinstance(each, torch.Tensor)]


def same_bits(one, other) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_bits(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_bits, one, other))
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and torch.equal(*(each.flatten().view(torch.uint8) for each in (one, other)))
    return one == other


def test_every_kernel_file_is_compared_or_refused():
    assert set(FILES) == set(LAUNCHES) | set(REFUSED)
    assert set(OF_HIP) < set(LAUNCHES)
    assert set(ANSWERS) == {f"{path.parent.name[1:3]}.{path.stem}" for path in FOLDER.glob("*/*.cu")}


@pytest.mark.drawn("unit", 1)
@pytest.mark.parametrize(
    ("name", "target"), [pytest.param(n, t, id=f"{unit(n)}.{n}-{t}") for n in LAUNCHES for t in TARGETS]
)
def test_a_kernel_file_gives_equal_bits_by_both_compilers(nvrtc, clang, name, target):
    source, defines = FILES[name].read_text(), ()
    if name in OF_HIP:
        with pytest.raises(CompileFailed, match=r"__shfl_|'vote' without '.sync'"):
            compile_cpp(source, target, "nvrtc")
        defines = WITHOUT_SYNC
    ours, theirs = compile_cpp(source, target), compile_cpp(source, target, "nvrtc", defines=defines)
    assert set(theirs.kernels) == set(ours.kernels) == {launch.kernel for launch in LAUNCHES[name]}
    for launch in LAUNCHES[name]:
        mine, other = ours.kernel(launch.kernel), theirs.kernel(launch.kernel)
        assert [(a.offset, a.size) for a in mine.arguments] == [(a.offset, a.size) for a in other.arguments]
        assert mine.shared == other.shared
        result = ended(ours, target, launch)
        assert same_bits(result, ended(theirs, target, launch)), launch.kernel
        assert (result == "OutOfBounds") == (name == "warp_count_64")


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_lesson_shows_as_refused_both_compilers_refuse(nvrtc, clang, name):
    for compiler in ("clang", "nvrtc"):
        with pytest.raises(CompileFailed):
            compile_cpp(FILES[name].read_text(), "sm_80", compiler)


@pytest.mark.drawn("unit", 1)
@pytest.mark.parametrize(("name", "target"), [pytest.param(n, t, id=f"{n}-{t}") for n in ANSWERS for t in TARGETS])
def test_a_solution_gives_equal_bits_by_both_compilers_in_every_case_of_its_grader(
    nvrtc, clang, name, target, monkeypatch
):
    graded = exercises.find(name)
    results = {}
    for compiler in ("clang", "nvrtc"):
        monkeypatch.setattr(cpp, "compile_cpp", functools.partial(compile_cpp, compiler=compiler))
        results[compiler] = []
        for case in graded.cases:
            inputs = graded.inputs(case, torch.Generator().manual_seed(5))
            with virtual_gpu(target):
                results[compiler].append(graded.call(graded_answer(name), inputs))
    for case, one, other in zip(graded.cases, results["clang"], results["nvrtc"], strict=True):
        assert same_bits(one, other), case


def graded_answer(name: str) -> Callable[[], str]:
    """The exercise's solution: the source in the file beside it."""
    number, _, stem = name.partition(".")
    return cpp.Framed.read(next(FOLDER.glob(f"u{number}_*")) / f"{stem}.cu")


HIDDEN, TOKENS = 768, 3
_PROJECT = [
    Launch(
        "normq_norm_kernel",
        1,
        256,
        _draws(
            *(_normal(TOKENS, HIDDEN), _normal(TOKENS, HIDDEN), _normal(HIDDEN)),
            *(_zeros(HIDDEN, TOKENS, dtype=torch.uint8), _zeros(TOKENS), TOKENS, 1e-5),
        ),
    ),
    Launch(
        "normq_clip_kernel", 3, 256, _draws(_normal(2500), 2500, 1.5, _zeros(2500, dtype=_INT), _zeros(1, dtype=_INT))
    ),
    Launch(
        "normq_gelu_kernel",
        3,
        256,
        _draws(lambda g: _normal(1501)(g).bfloat16(), _zeros(1501, dtype=torch.bfloat16), 1501),
    ),
]


@pytest.mark.drawn("unit", 1)
@pytest.mark.parametrize("target", [pytest.param(t, id=f"03.project-{t}") for t in TARGETS])
def test_the_cuda_project_of_the_port_gives_equal_bits_by_both_compilers(nvrtc, clang, target):
    def source(files: dict[str, str]) -> str:
        return "\n".join(line for line, _ in placed(files, ("csrc/kernels.cuh",))[1:])

    files = cuda_project()
    theirs = compile_cpp(source(files), target, "nvrtc", options=["-default-device"])  # cuda.h has host functions
    ours = compile_cpp(source({**files, "csrc/hopper.cuh": ""}), target)  # which includes cuda.h and mma.h
    for launch in _PROJECT:
        shared = 32 * HIDDEN * 4 if launch.kernel == "normq_norm_kernel" else 0
        result = ended(ours, target, launch, shared)
        assert isinstance(result, list)
        assert same_bits(result, ended(theirs, target, launch, shared)), launch.kernel
