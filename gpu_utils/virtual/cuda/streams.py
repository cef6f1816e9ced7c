"""Streams and events: a launch has ended when it returns, so streams keep no order of their own and never wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.virtual.benchmarks import Event as Noted
from gpu_utils.virtual.cuda.marks import CUDA

_current = threading.local()


class Stream:
    """`torch.cuda.Stream`."""

    numbers = 0

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        Stream.numbers += 1
        self.stream_id, self.priority, self.device, self.device_index = Stream.numbers, priority, CUDA, 0
        self.device_type, self.cuda_stream = 1, Stream.numbers

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def synchronize(self) -> None:
        """Everything has ended."""

    def wait_event(self, event: Any) -> None:
        """It has passed."""

    def wait_stream(self, stream: Any) -> None:
        """It is empty."""

    def record_event(self, event: Any = None) -> Any:
        event = torch.cuda.Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self.__dict__.setdefault("before", []).append(current())
        _current.stream = self
        return self

    def __exit__(self, *_: Any) -> None:
        _current.stream = self.__dict__["before"].pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"


DEFAULT = Stream()
DEFAULT.stream_id = DEFAULT.cuda_stream = 0


def current(device: Any = None) -> Stream:
    return getattr(_current, "stream", DEFAULT)


def set_stream(stream: Stream | None) -> None:
    if stream is not None:
        _current.stream = stream


class StreamContext:
    """`torch.cuda.stream(...)`, which takes None too."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__()


def event_class(gpu: Callable[[], Any]) -> type:
    """`torch.cuda.Event` of the innermost virtual GPU.

    elapsed_time gives the predicted cycles of the launches in between; milliseconds of the host when there are none. It
    is no time of a GPU.
    """

    class Event(Noted):
        def __init__(self, enable_timing: bool = False, blocking: bool = False, **_: Any) -> None:
            super().__init__(gpu())
            self.enable_timing, self.cuda_event, self.device = enable_timing, 0, CUDA

        def record(self, stream: Any = None) -> None:
            super().record(stream)

        def query(self) -> bool:
            return True

        def wait(self, stream: Any = None) -> None:
            """It has passed."""

        def elapsed_time(self, end: Any) -> float:
            for event in (self, end):
                if not event.enable_timing:
                    raise ValueError("Both events must be created with argument 'enable_timing=True'.")
                if not hasattr(event, "clock"):
                    raise ValueError("Both events must be recorded before calculating elapsed time.")
            return super().elapsed_time(end)

    return Event


def functions() -> dict[str, Any]:
    """The names of torch.cuda about streams, but for events."""
    return {
        "Stream": Stream,
        "StreamContext": StreamContext,
        "stream": StreamContext,
        "current_stream": current,
        "default_stream": lambda device=None: DEFAULT,
        "set_stream": set_stream,
        "synchronize": lambda device=None: None,
        "is_current_stream_capturing": lambda: False,
    }
