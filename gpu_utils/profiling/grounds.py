"""What the kernels of a device are judged on: its chip, the peaks of that, and how busy it was."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_utils.analytic.roofline import Roofline, roofline
from gpu_utils.chips import CHIPS, TARGETS, Chip, chip_of_device
from gpu_utils.errors import UnknownFigure
from gpu_utils.profiling.busy import Busy
from gpu_utils.profiling.pooled import Pool
from gpu_utils.profiling.profile import Device, Profile, vendor_of
from gpu_utils.profiling.rules import Ground

_AGAINST_PEAKS = ("memory_bytes", "fp32_flop", "matrix_flop")


def chip_of(device: Device | None, pools: Sequence[Pool], remarks: list[str]) -> Chip | None:
    """The row of CHIPS that a device's name or target says; a remark where it is not its own."""
    if device is None:
        return None
    if device.virtual:
        compared = any(pool.sums(name, "duration") for pool in pools for name in _AGAINST_PEAKS)
        more = "; --chip names one to compare with" if compared else ""
        remarks.append(f"no peaks are drawn in for a virtual GPU, whose times are modelled{more}")
        return None
    if (known := chip_of_device(device.name)) is not None:
        return known
    if device.target and device.target in TARGETS:
        stand_in = CHIPS[TARGETS[device.target].chip]
        remarks.append(
            f"{device.name or 'the device'} names no chip of the registry, so peaks are those of {stand_in.name}, "
            f"which stands for {device.target}; choose another with --chip"
        )
        return stand_in
    return None


def roofs_of(chip: Chip | None, remarks: list[str]) -> dict[str, Roofline]:
    """fp32 on the vector units, and the matrix units at bf16: the counters do not say the format."""
    roofs = {}
    for name, dtype in (("fp32", "fp32"), ("matrix", "bf16")):
        try:
            if chip is not None:
                roofs[name] = roofline(chip, dtype)
        except UnknownFigure as error:
            remarks.append(str(error))
    return roofs


def ground(profile: Profile, device: str, chip: Chip | None, roofs: dict[str, Roofline], found: Busy) -> Ground:
    """Of one device, as its events name it."""
    said = profile.devices.get(device)
    target = TARGETS[said.target] if said and said.target and said.target in TARGETS else chip.limits if chip else None
    units = None
    if said and said.units:
        units = float(said.units), "the profile's description of the device"
    elif chip and chip.units.value:
        units = chip.units.value, chip.units.source
    vendor = vendor_of(profile.devices, device) or (chip.vendor if chip else None)
    return Ground(vendor, target, units, roofs, found.of(device))
