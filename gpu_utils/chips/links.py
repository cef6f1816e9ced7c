"""Links between chips and between nodes: bandwidth in one direction, what of it is usable, and what a start costs.

Data sheets of NVLink add both directions; here every bandwidth is of one direction. On a switch it is that of a chip's
whole port, which all peers share; in a mesh it is that of one pair. `alpha_us` is what a library assumes for one step
of a ring over such a link, where its table says so: the time of hardware alone is shorter. Where no source gives a
figure it is unknown, and nothing is computed from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_utils.chips.figure import Figure, unknown
from gpu_utils.chips.registry import CHIPS
from gpu_utils.chips.source import Source
from gpu_utils.chips.table import Table

_DAY = "2026-11-26"
_NCCL = Source("NVIDIA/nccl src/graph/tuning.cc, hwLat, at commit 01afd20", _DAY)
_RCCL = Source("ROCm/rccl src/graph/tuning.cc, hwLat, at commit 0023b9b", _DAY)
_AMD_BLOG = Source("rocm.blogs.amd.com, Understanding RCCL Bandwidth and xGMI Performance on MI300X", _DAY, "excerpt")
_V3 = Source("DeepSeek-V3 report, arXiv 2412.19437, section 3.2.2", _DAY)
_DEEPEP = Source("deepseek-ai/DeepEP docs/legacy.md", _DAY)
_MORI = Source("ROCm/mori README.md", _DAY)
_MI250 = Source("ROCm docs/conceptual/gpu-arch/mi250.md", "2026-11-22")
_PCIE = Source("alpha-one-index.github.io/ai-infra-index, networking-interconnects", _DAY, "excerpt")
_ASCEND = Source("besthub.dev, Huawei's Ascend chips from 910C to 970 (Huawei Connect 2025)", _DAY, "excerpt")
_CLOUDMATRIX = Source("besthub.dev, Inside Huawei's CloudMatrix384, which reports arXiv 2506.12708", _DAY, "excerpt")

_OF_A_RING = "a step of a ring, protocol Simple"
_OLDER = "the table at that commit is older than the chip"
_NO_ALPHA = unknown("µs", "no source in this registry gives a step of a collective over it")
_NOT_MEASURED = unknown("GB/s", "no source in this registry says what is reached")


@dataclass(frozen=True, kw_only=True)
class Link:
    """One kind of link.

    name       as people say it
    kind       "nvlink", "xgmi", "pcie", "network" or "ascend"
    each       "port": the bandwidth of a chip to all its peers through a switch; "pair": to one peer of a mesh
    gb         peak, one direction
    usable_gb  what is reached of it, one direction, as somebody measured or recommends to count
    alpha_us   what one step over it costs before the first byte counts
    note       what else a reader should know
    """

    name: str
    kind: str
    each: str
    gb: Figure
    usable_gb: Figure
    alpha_us: Figure
    note: str = ""

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second in one direction: the usable figure where there is one, else the peak.

        >>> LINKS["NVLink 4"].bandwidth, LINKS["xGMI of MI300X"].bandwidth
        (450000000000.0, 48000000000.0)
        """
        value = self.gb.value if self.usable_gb.value is None else self.usable_gb.value
        return None if value is None else value * 1e9

    @property
    def alpha(self) -> float | None:
        """Seconds of one step before bytes count; None where no source says so.

        >>> LINKS["Ascend 910C"].alpha is None
        True
        """
        return None if self.alpha_us.value is None else self.alpha_us.value * 1e-6

    def __str__(self) -> str:
        return f"{self.name} ({self.each}): {self.gb} each way, usable {self.usable_gb}, alpha {self.alpha_us}"


def _half(chip: str) -> Figure:
    """One direction of a chip's NVLink, from the registry's sum of both."""
    both = CHIPS[chip].link_gb
    assert both.value is not None, f"{chip} has no figure for its links"
    return Figure(
        both.value / 2, "GB/s", both.source, f"derived: half of {both.value:g}, the sum of both ways", both.when
    )


_NVLINK_ALPHA = _NCCL.figure(3.4, "µs", _OF_A_RING)
_NVLINK_4_ALPHA = _NCCL.figure(3.4, "µs", f"{_OF_A_RING}; {_OLDER}")
_NETWORK_ALPHA = _NCCL.figure(9.6, "µs", f"{_OF_A_RING}; over RCCL's network it is 4.5 ({_RCCL.where})")

_ROWS = (
    Link(
        name="NVLink 3",
        kind="nvlink",
        each="port",
        gb=_half("A100"),
        usable_gb=_NOT_MEASURED,
        alpha_us=_NVLINK_ALPHA,
        note="A100",
    ),
    Link(
        name="NVLink 4",
        kind="nvlink",
        each="port",
        gb=_half("H100"),
        usable_gb=_NOT_MEASURED,
        alpha_us=_NVLINK_4_ALPHA,
        note="H100, H200, H20",
    ),
    Link(
        name="NVLink 4 of H800",
        kind="nvlink",
        each="port",
        gb=_half("H800"),
        usable_gb=_V3.figure(160, "GB/s", "the report's figure for NVLink; DeepEP says about 160 at most"),
        alpha_us=_NVLINK_4_ALPHA,
    ),
    Link(
        name="NVLink 5",
        kind="nvlink",
        each="port",
        gb=_half("B200"),
        usable_gb=_NOT_MEASURED,
        alpha_us=unknown("µs", "the table at hand is two generations older than the chip"),
        note="B200",
    ),
    Link(
        name="Infinity Fabric of MI250",
        kind="xgmi",
        each="pair",
        gb=_MI250.figure(50, "GB/s", "one link of 16 lanes; pairs have one or more of them"),
        usable_gb=_NOT_MEASURED,
        alpha_us=_RCCL.figure(2.7, "µs", _OF_A_RING),
    ),
    Link(
        name="xGMI of MI300X",
        kind="xgmi",
        each="pair",
        gb=_AMD_BLOG.figure(64, "GB/s", "to each of seven peers"),
        usable_gb=_AMD_BLOG.figure(48, "GB/s", "after CRC and protocol, as the page says"),
        alpha_us=_RCCL.figure(2.7, "µs", f"{_OF_A_RING}; {_OLDER}"),
        note="8 GPUs, each connected to the 7 others",
    ),
    Link(
        name="PCIe 5.0 x16",
        kind="pcie",
        each="port",
        gb=_PCIE.figure(64, "GB/s"),
        usable_gb=_NOT_MEASURED,
        alpha_us=_NCCL.figure(5.7, "µs", f"{_OF_A_RING}; RCCL's table has 1.9 ({_RCCL.where})"),
    ),
    Link(
        name="InfiniBand NDR",
        kind="network",
        each="port",
        gb=_DEEPEP.figure(50, "GB/s", "400 Gb/s"),
        usable_gb=_NOT_MEASURED,
        alpha_us=_NETWORK_ALPHA,
        note="one network card for each GPU",
    ),
    Link(
        name="RoCE 400G",
        kind="network",
        each="port",
        gb=_CLOUDMATRIX.figure(50, "GB/s", "400 Gb/s"),
        usable_gb=_MORI.figure(48.3, "GB/s", "reads of 1 MiB by an MI300X over a Thor2 card, mean"),
        alpha_us=unknown("µs", "the tables of NCCL and RCCL do not tell networks apart"),
        note="RDMA over Ethernet",
    ),
    Link(
        name="Ascend 910C",
        kind="ascend",
        each="port",
        gb=_ASCEND.figure(392, "GB/s", "derived: half of 784; reports differ: DigiTimes has 400 for both ways"),
        usable_gb=_NOT_MEASURED,
        alpha_us=_NO_ALPHA,
        note="inside a CloudMatrix384, as reported",
    ),
    Link(
        name="Ascend 910B",
        kind="ascend",
        each="pair",
        gb=unknown("GB/s", "no source in this registry"),
        usable_gb=_NOT_MEASURED,
        alpha_us=_NO_ALPHA,
    ),
)

LINKS: Table[Link] = Table("link", {row.name: row for row in _ROWS})
"""Name -> link. An unknown name raises UnknownName with the nearest."""
