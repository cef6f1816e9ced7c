"""How shared memory (LDS) serves one access of a wave: how many banks, and which lanes go through them together.

One table for the rule on paper, the counters of the virtual GPUs and the explorer. Chips differ in two things: in the
number of banks that an instruction sees, and in the lanes that make a phase. Lanes of one phase wait for each other
where they want different words of one bank; lanes of different phases never do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain

from gpu_utils.chips.source import Source
from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import UnknownName

WORD = 4
"""Bytes that one bank serves in one cycle."""

ACCESSES = ("read", "write")
"""What a lane does. An atomic goes as a write: no source tells them apart."""

SIZES = (4, 8, 12, 16)
"""Bytes of a lane that have a row; a smaller access goes as the next larger one."""

_DAY = "2026-11-22"
_MEASURED = Source("github.com/nod-ai/amd-shark-ai docs/empirical-lds/lds_summary.md", _DAY)
_GUIDE = Source("github.com/nod-ai/amd-shark-ai docs/amdgpu_kernel_optimization_guide.md", _DAY)
_ROCROLLER = Source("github.com/ROCm/rocm-libraries shared/rocroller/lib/source/LDSBankModel.cpp", _DAY)
_HIPKITTENS = Source("github.com/HazyResearch/HipKittens analysis/paper_experiments/phases", _DAY)
_IREE = Source("github.com/iree-org/iree pull 24471", _DAY, "excerpt")
_CUDA = Source(
    "CUDA C++ Best Practices Guide, Shared Memory, as ai-infrastructure.net/shared-memory-tiling gives it",
    _DAY,
    "excerpt",
)
_COMGR = Source("AMD's comgr-isa-metadata.def in github.com/ROCm/llvm-project pull 513", "2026-11-27", "excerpt")

_RULE = Source("the rule that textbooks give", _DAY)

_NOT_MEASURED = "not measured: lanes in order, as many as fill the banks once"
_ITS_CLOCKS = (
    "the file says the number of banks; its groups are clocks of a port, of half as many lanes as measured phases"
)
_RDNA = (
    "AMD's HIP documentation (hardware implementation, since pull 3114 of ROCm/rocm-systems) says 64 banks for RDNA2 "
    "and later: those of both halves of a WGP. Measured with one wave are 32, and the course takes these."
)
_HIP_950 = "AMD's HIP documentation says 64 banks for CDNA4 and tells no accesses apart."


@dataclass(frozen=True, kw_only=True)
class Service:
    """How one kind of access is served.

    banks     banks of 4 bytes that the access sees
    phases    the lanes of each phase, in the order of the phases
    source    who says so
    note      what other sources say, and which one the course follows
    """

    banks: int
    phases: tuple[tuple[int, ...], ...]
    source: Source
    note: str = ""
    order: tuple[int, ...] = field(init=False, repr=False)
    """All lanes in the order of the phases."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", tuple(chain(*self.phases)))

    @property
    def together(self) -> int:
        """Lanes of a phase."""
        return len(self.phases[0])

    @property
    def in_order(self) -> bool:
        """Whether the phases are lanes 0, 1, 2, ... one after the other."""
        return self.order == tuple(range(len(self.order)))

    @property
    def said(self) -> str:
        """The lanes of the phases, for people: "0-3 and 20-23; 32-35 and 52-55; ..."."""
        return "; ".join(" and ".join(_runs(phase)) for phase in self.phases)


def _runs(lanes: tuple[int, ...]) -> list[str]:
    """Neighbours in one word: (0, 1, 2, 3, 20, 21) is 0-3 and 20-21.

    >>> _runs((0, 1, 2, 3, 20, 21))
    ['0-3', '20-21']
    """
    starts = [at for at in range(len(lanes)) if at == 0 or lanes[at] != lanes[at - 1] + 1]
    ends = [*starts[1:], len(lanes)]
    return [f"{lanes[start]}-{lanes[end - 1]}" for start, end in zip(starts, ends, strict=True)]


def plain(banks: int, size: int, lanes: int, source: Source = _RULE, note: str = "") -> Service:
    """The textbook's rule: lanes in order, as many in a phase as fill the banks once; 12 bytes go as 16 do.

    >>> [plain(32, size, 64).together for size in (4, 8, 12, 16)]
    [32, 16, 8, 8]
    """
    words = max(1, -(-size // WORD))
    together = min(lanes, max(1, banks // (1 << (words - 1).bit_length())))
    starts = range(0, lanes, together)
    phases = tuple(tuple(range(start, min(start + together, lanes))) for start in starts)
    return Service(banks=banks, phases=phases, source=source, note=note)


def _dealt(banks: int, groups: tuple[tuple[int, ...], ...], lanes: int, source: Source, note: str = "") -> Service:
    """Phases of which each takes groups of four lanes: (0, 5) is lanes 0-3 and 20-23; again for each 32 lanes."""
    phases = [tuple(4 * group + lane for group in phase for lane in range(4)) for phase in groups]
    halves = [tuple(first + lane for lane in phase) for phase in phases for first in range(0, lanes, 32)]
    return Service(banks=banks, phases=tuple(halves), source=source, note=note)


_EIGHTS = ((0, 5), (1, 4), (2, 7), (3, 6))
_SIXTEENS = ((0, 3, 5, 6), (1, 2, 4, 7))


def _nvidia() -> dict[tuple[str, int], Service]:
    wide = "the guide says 32 banks and gives no phases for wide accesses: lanes in order are the course's choice"
    return {
        (access, size): plain(32, size, 32, _CUDA, wide if size > WORD else "") for access in ACCESSES for size in SIZES
    }


def _gfx90a() -> dict[tuple[str, int], Service]:
    return {(access, size): plain(32, size, 64, _IREE, _NOT_MEASURED) for access in ACCESSES for size in SIZES}


def _gfx942() -> dict[tuple[str, int], Service]:
    said = "the same in github.com/triton-lang/triton pull 11365, by an engineer of AMD"
    as_950 = "as on gfx950, where it was measured; AMD's model says that gfx950 kept it from gfx942"
    return {
        **{("read", size): plain(32, size, 64, _MEASURED) for size in (4, 8)},
        ("read", 12): _dealt(32, _EIGHTS, 64, _ROCROLLER, as_950),
        ("read", 16): _dealt(32, _EIGHTS, 64, _MEASURED, said),
        **{("write", size): plain(32, size, 64, _ROCROLLER, f"{_ITS_CLOCKS}; {_NOT_MEASURED}") for size in (4, 8, 12)},
        ("write", 16): plain(32, 16, 64, _GUIDE),
    }


def _gfx950() -> dict[tuple[str, int], Service]:
    agree = "measured alike in HipKittens (analysis/paper_experiments/phases); AMD's rocRoller counts 64 banks, too"
    narrow = (
        "AMD's HIP documentation says 64 banks, too; AMD's rocRoller counts 32 for all but reads of 8 and 16 bytes. "
        "The course takes what was measured."
    )
    return {
        ("read", 4): plain(64, 4, 64, _MEASURED, narrow),
        ("read", 8): plain(64, 8, 64, _MEASURED, agree),
        ("read", 12): _dealt(32, _EIGHTS, 64, _HIPKITTENS, _HIP_950),
        ("read", 16): _dealt(64, _SIXTEENS, 64, _MEASURED, agree),
        ("write", 4): plain(
            32, 4, 64, _ROCROLLER, f"{_HIP_950} The course takes AMD's model: {_ITS_CLOCKS}; {_NOT_MEASURED}"
        ),
        ("write", 8): plain(32, 8, 64, _HIPKITTENS, _HIP_950),
        ("write", 12): plain(
            32, 12, 64, _ROCROLLER, f"{_HIP_950} The course takes AMD's model: {_ITS_CLOCKS}; {_NOT_MEASURED}"
        ),
        ("write", 16): plain(
            32, 16, 64, _ROCROLLER, f"{_HIP_950} The course takes AMD's model: {_ITS_CLOCKS}; {_NOT_MEASURED}"
        ),
    }


def _rdna(wide: Service) -> dict[tuple[str, int], Service]:
    reads = {("read", size): plain(32, size, 32, _MEASURED, _RDNA) for size in (4, 8)}
    writes = {("write", size): plain(32, size, 32, _MEASURED, f"{_RDNA} {_NOT_MEASURED}") for size in SIZES}
    narrow = replace(wide, note=f"{_RDNA} As for 16 bytes: not measured.")
    return {**reads, ("read", 12): narrow, ("read", 16): wide, **writes}


def _gfx1250() -> dict[tuple[str, int], Service]:
    return {(access, size): plain(64, size, 32, _COMGR, _NOT_MEASURED) for access in ACCESSES for size in SIZES}


_RDNA3_WIDE = _dealt(32, _EIGHTS, 32, _MEASURED, _RDNA)
_RDNA4_WIDE = plain(32, 16, 32, _MEASURED, f"{_RDNA} AMD says in order: github.com/triton-lang/triton pull 11365.")
_OF_TARGET = {
    "gfx90a": _gfx90a(),
    "gfx942": _gfx942(),
    "gfx950": _gfx950(),
    "gfx1100": _rdna(_RDNA3_WIDE),
    "gfx1201": _rdna(_RDNA4_WIDE),
    "gfx1250": _gfx1250(),
}
BANKS: dict[str, dict[tuple[str, int], Service]] = {
    name: _OF_TARGET[name] if name in _OF_TARGET else _nvidia() for name in TARGETS
}
"""Target -> (read or write, bytes of a lane) -> how it is served."""


def service(target: str, access: str, size: int) -> Service:
    """How an access of `size` bytes a lane is served. Errors: UnknownName for a target or an access.

    >>> service("gfx950", "read", 8).banks, service("gfx950", "write", 8).banks
    (64, 32)
    >>> service("gfx942", "read", 16).phases[0]
    (0, 1, 2, 3, 20, 21, 22, 23)
    """
    if access not in ACCESSES:
        raise UnknownName("access", access, ACCESSES)
    if target not in BANKS:
        raise UnknownName("target", target, BANKS)
    return BANKS[target][access, next((row for row in SIZES if size <= row), SIZES[-1])]
