"""The registry of chips and targets, and `probe()`, which names what this machine has."""

from gpu_utils.chips.chip import Chip
from gpu_utils.chips.figure import Figure
from gpu_utils.chips.probing import Probe, probe
from gpu_utils.chips.registry import CHIPS, chip_of_device
from gpu_utils.chips.targets import TARGETS, Target

__all__ = ["CHIPS", "TARGETS", "Chip", "Figure", "Probe", "Target", "chip_of_device", "probe"]
