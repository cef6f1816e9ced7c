"""torch.save and torch.load of tensors on the GPU: the file says "cuda:0", and a file that says so is loaded there."""

from __future__ import annotations

from typing import Any

from gpu_utils.virtual.cuda.marks import CUDA, Mark, mark_in, wanted


def _tag(storage: Any) -> str | None:
    mark = mark_in(storage)
    return str(CUDA) if mark is not None and mark.side == "cuda" else None


def _load(storage: Any, location: str) -> Any:
    if not location.startswith("cuda"):
        return None
    wanted(location)
    Mark.on(storage, "cuda")
    return storage


saving = (0, _tag, _load)
"""An entry of torch.serialization's registry: priority, what names a place, what loads there."""
