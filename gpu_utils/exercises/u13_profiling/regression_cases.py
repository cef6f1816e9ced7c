"""Written pairs of profiles of 13.regression: each is one where a rule, slightly wrong, says another thing.

In all of them the largest loss has no equal, and two base names at least are in both profiles.
"""

from __future__ import annotations

from typing import Any

from gpu_utils.grading.exercise import Example

Launch = tuple[str, int] | tuple[str, int, dict[str, Any]]
"""A name, ns, and what is not as usual."""


def row(name: str, start: int, duration: int, **known: Any) -> dict[str, Any]:
    usual = {"grid": 1024, "memory_bytes": 1_000_000, "registers": 32, "shared_bytes": 0, "occupancy": 90.0}
    return {"name": name, "start": start, "duration": duration, **usual, **known}


def laid(*launches: Launch, gap: int = 0) -> list[dict[str, Any]]:
    """Rows of a profile, one launch after the other.

    >>> [(one["start"], one["duration"]) for one in laid(("gemm", 30), ("gelu", 20), gap=5)]
    [(0, 30), (35, 20)]
    """
    rows: list[dict[str, Any]] = []
    now = 0
    for name, duration, *known in launches:
        rows.append(row(name, now, duration, **(known[0] if known else {})))
        now += duration + gap
    return rows


def of(name: str, durations: list[int], **columns: list[Any]) -> list[Launch]:
    """Launches of one kernel, with a list for each column that is not as usual."""
    return [
        (name, duration, {column: values[at] for column, values in columns.items()})
        for at, duration in enumerate(durations)
    ]


STATED = Example(
    "the small example of the statement",
    before=[row("void gemm<64>(float*)", 0, 800_000), row("softmax_1", 900_000, 100_000)],
    after=[
        row("void gemm<128>(float*)", 0, 820_000),
        row("softmax_2", 920_000, 100_000),
        row("softmax_2", 1_030_000, 100_000),
    ],
)

_GEMM: Launch = ("gemm", 600_000)
_MANY, _FEW = {"memory_bytes": 2_000_000}, {"occupancy": 45.0}
_THREE = [100_000] * 3
_SLOW = [140_000] * 3
_FEWER = [200_000] * 2

_NOISE = (
    Example(
        "just above 0.03 of the span of 'before', and below 0.03 of that of 'after', since idle time grew too",
        before=[row("gemm", 0, 600_000), row("gelu", 600_000, 400_000)],
        after=[row("gelu", 631_000, 431_500, memory_bytes=1_500_000), row("gemm", 0, 600_000)],
    ),
    Example(
        "two kernels and idle just below 0.03 of the span each: more together, and more than 0.03 of busy time",
        before=laid(("gemm", 300_000), ("gelu", 200_000), ("loss", 100_000), gap=200_000),
        after=laid(("gemm", 329_000), ("gelu", 228_000), ("loss", 100_000), gap=213_000),
    ),
)

_CLOCK = (
    Example(
        "both kernels are slower by nearly one factor, one by less than 1.05: not the clock; bytes rose by 1.05",
        before=[row("gemm", 0, 500_000), row("gelu", 500_000, 500_000)],
        after=[row("gemm", 0, 520_000), row("gelu", 520_000, 535_000, memory_bytes=1_050_000)],
    ),
    Example(
        "the smallest ratio just above 1.05",
        before=laid(("gemm", 500_000), ("gelu", 500_000)),
        after=laid(("gemm", 526_500), ("gelu", 540_000)),
    ),
    Example(
        "the largest ratio 1.038 times the smallest",
        before=laid(("gemm", 500_000), ("gelu", 500_000)),
        after=laid(("gemm", 625_000), ("gelu", 649_000)),
    ),
    Example(
        "the largest ratio 1.042 times the smallest",
        before=laid(("gemm", 500_000), ("gelu", 500_000)),
        after=laid(("gemm", 550_000), ("gelu", 573_000)),
    ),
    Example(
        "launches longer by one factor; one kernel is launched more often, and the GPU waits longer",
        before=laid(("gemm", 500_000), ("gelu", 100_000), ("gelu", 100_000), gap=10_000),
        after=laid(("gemm", 550_000), *[("gelu", 110_000)] * 3, gap=200_000),
    ),
    Example(
        "sums longer by one factor, launches not: one kernel is launched half as often, each for twice as long",
        before=laid(("gemm", 400_000), ("gelu", 250_000), ("gelu", 250_000)),
        after=laid(("gemm", 440_000), ("gelu", 550_000)),
    ),
    Example(
        "launches longer by one factor, in a program whose GPU waits most of the time: less than noise, and the clock",
        before=laid(("gemm", 60_000), ("gelu", 40_000), gap=900_000),
        after=laid(("gemm", 66_000), ("gelu", 44_200), gap=900_000),
    ),
)

_KERNEL = (
    Example(
        "a kernel gained more than another lost",
        before=laid(_GEMM, ("gelu", 200_000), ("loss", 100_000)),
        after=laid(("gemm", 400_000), ("gelu", 300_000, _MANY), ("loss", 101_000)),
    ),
    Example(
        "both kernels are slower, by different factors; occupancy was not collected, shared memory rose",
        before=[row("gemm", 0, 500_000), row("gelu", 500_000, 500_000)],
        after=[
            row("gemm", 0, 600_000),
            row("gelu", 600_000, 800_000, memory_bytes=None, occupancy=None, shared_bytes=20_480),
        ],
    ),
)

_CAUSE = (
    Example(
        "more calls, more bytes a launch and fewer waves: calls come first",
        before=laid(_GEMM, ("gelu", 200_000)),
        after=laid(_GEMM, ("gelu", 200_000, _MANY | _FEW), ("gelu", 200_000, _MANY | _FEW)),
    ),
    Example(
        "more bytes and fewer waves: bytes come first",
        before=laid(_GEMM, ("gelu", 200_000)),
        after=laid(_GEMM, ("gelu", 400_000, _MANY | _FEW | {"registers": 64})),
    ),
    Example(
        "fewer launches, each longer; bytes of a launch rose in the mean, not in the first one, the last or the sum",
        before=laid(_GEMM, *of("gelu", _THREE, memory_bytes=[4_000_000, 1_000_000, 4_000_000])),
        after=laid(_GEMM, *of("gelu", _FEWER, memory_bytes=[3_600_000] * 2)),
    ),
    Example(
        "bytes and occupancy of the first launch and of the last changed, their means did not",
        before=laid(
            _GEMM,
            *of("gelu", _THREE, memory_bytes=[1_000_000, 4_000_000, 1_000_000], occupancy=[90.0, 30.0, 90.0]),
        ),
        after=laid(
            _GEMM,
            *of("gelu", _SLOW, memory_bytes=[2_000_000, 2_100_000, 2_000_000], occupancy=[72.0, 66.0, 72.0]),
        ),
    ),
    Example(
        "bytes unknown in 'before' alone; occupancy fell in the mean, not in the first launch",
        before=laid(_GEMM, *of("gelu", _THREE, memory_bytes=[None] * 3, occupancy=[50.0, 90.0, 50.0])),
        after=laid(_GEMM, *of("gelu", _SLOW, occupancy=[52.0, 52.0, 52.0])),
    ),
    Example(
        "bytes unknown in 'after' alone; occupancy in 'before' alone; registers rose in the mean, not in the sum",
        before=laid(_GEMM, *of("gelu", _THREE, occupancy=[None] * 3, registers=[64, 32, 64])),
        after=laid(_GEMM, *of("gelu", _FEWER, memory_bytes=[None] * 2, registers=[64, 64])),
    ),
    Example(
        "bytes and occupancy of one launch of 'before' are unknown, so their means are; the launch is as it was",
        before=laid(
            _GEMM,
            *of("gelu", _THREE, memory_bytes=[1_000_000, None, 1_000_000], occupancy=[90.0, None, 90.0]),
        ),
        after=laid(_GEMM, *of("gelu", _SLOW, memory_bytes=[2_000_000] * 3, occupancy=[45.0] * 3)),
    ),
    Example(
        "bytes and occupancy of one launch of 'after' are unknown; shared memory rose in the mean, not in the sum",
        before=laid(_GEMM, *of("gelu", _THREE, shared_bytes=[8192, 1024, 8192])),
        after=laid(
            _GEMM,
            *of(
                "gelu",
                _FEWER,
                memory_bytes=[2_000_000, None],
                occupancy=[90.0, None],
                shared_bytes=[8192, 8192],
            ),
        ),
    ),
    Example(
        "bytes and occupancy unknown in both; registers and shared memory of the first launch rose, their means did "
        "not",
        before=laid(_GEMM, *of("gelu", _THREE, registers=[32, 64, 32], shared_bytes=[1024, 8192, 1024])),
        after=laid(
            _GEMM,
            *of(
                "gelu",
                _SLOW,
                memory_bytes=[None] * 3,
                occupancy=[None] * 3,
                registers=[40, 56, 40],
                shared_bytes=[2048, 6144, 2048],
            ),
        ),
    ),
)

_NAMES = (
    ("void vortex<float, 4>(float*)", "vortex_2.kd"),
    ("dropout", "void dropout [clone .kd]"),
    ("conv3 ", "conv3_12"),
    ("void conv4(float*)", "conv4_0 <2>(float*)"),
    ("a_1_2", "a_1_4(int)"),
    ("devoid <2>(int)", "devoid.kd"),
    ("void gemm_64x64_nt_7", "gemm_64x64_nt_8 [clone .kd]"),
    ("sum_v2", "void sum_v2_3.kd"),
    ("void at::native::fill<4>(float*)", "at::native::fill_3.kd"),
)
"""Two names of each kernel; what is left of both is one base name."""

NAMES = tuple(
    Example(
        f"names as two builds write them; slower is {slow[0].strip()}",
        before=laid(*((name, 100_000) for name, _ in _NAMES)),
        after=laid(*((pair[1], 180_000 if pair is slow else 100_000) for pair in _NAMES)),
    )
    for slow in _NAMES
)

WRITTEN = (STATED, *_NOISE, *_CLOCK, *_KERNEL, *_CAUSE, *NAMES)
