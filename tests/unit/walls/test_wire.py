"""Messages come back as they were; whatever else comes is refused, and nothing of it runs."""

from __future__ import annotations

import contextlib
import os
import struct
import time

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_utils.grading.execute import same
from gpu_utils.grading.plain import NotPlain
from gpu_utils.grading.walls import wire

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool)


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    found = torch.arange(1 + max(1, torch.Size(shape).numel())).to(draw(st.sampled_from(DTYPES)))
    view = found[1 : 1 + torch.Size(shape).numel()].view(shape)
    return view.T if view.dim() == 2 and draw(st.booleans()) else view


LEAVES = st.none() | st.booleans() | st.integers(-(2**200), 2**200) | st.floats(allow_nan=False) | st.text(max_size=9)
LEAVES |= st.binary(max_size=9) | st.sampled_from(DTYPES) | tensors() | st.just(NotPlain("a generator"))
PLAIN = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner))


def equal(one, other):
    """As `same`, and tensors have their strides."""
    if isinstance(one, torch.Tensor):
        return same(one, other) and (
            not one.numel() or (one.stride() == other.stride() and one.storage_offset() == other.storage_offset())
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


def is_plain(value):
    if isinstance(value, dict):
        return all(is_plain(item) for pair in value.items() for item in pair)
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str, bytes, torch.dtype, torch.Tensor, NotPlain)


def framed(tree, *memory):
    return b"".join(struct.pack("<Q", len(piece)) + piece for piece in (tree, *memory))


@given(PLAIN)
@settings(max_examples=50, deadline=None)
def test_plain_data_comes_back_as_it_was(value):
    assert equal(value, wire.unpack(wire.pack(value)))


def test_tensors_that_share_memory_share_it_on_the_other_side():
    x = torch.zeros(6)
    one, other = wire.unpack(wire.pack([x[:4], x[2:]]))
    one.fill_(1.0)
    assert other.tolist() == [1.0, 1.0, 0.0, 0.0]


@given(st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_refused_or_plain_data(data):
    with contextlib.suppress(wire.BadMessage):
        assert is_plain(wire.unpack(data))


@given(st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_bytes_in_a_frame_are_refused_or_plain_data(data):
    with contextlib.suppress(wire.BadMessage):
        assert is_plain(wire.unpack(framed(data, b"memory")))


@given(PLAIN, st.integers(0, 10**6), st.integers(0, 255))
@settings(max_examples=60, deadline=None)
def test_a_message_with_another_byte_is_refused_or_plain_data(value, at, byte):
    data = bytearray(wire.pack(value))
    data[at % len(data)] = byte
    with contextlib.suppress(wire.BadMessage):
        assert is_plain(wire.unpack(bytes(data)))


DESCRIBED = {
    "a storage that is not there": ["float32", [1], [1], 0, 7],
    "a negative storage": ["float32", [1], [1], 0, -1],
    "more than its memory": ["float32", [3], [1], 0, 0],
    "an offset beyond it": ["float32", [1], [1], 2, 0],
    "a negative stride": ["float32", [2], [-1], 1, 0],
    "huge sizes of stride 0": ["float32", [1 << 39, 1 << 39], [0, 0], 0, 0],
    "other numbers of sizes and strides": ["float32", [1, 1], [1], 0, 0],
    "a name of torch that is no dtype": ["load", [1], [1], 0, 0],
    "a quantized dtype": ["quint8", [1], [1], 0, 0],
    "sizes that are truth values": ["float32", [True], [True], False, 0],
    "a dict": {"dtype": "float32"},
}


@pytest.mark.parametrize("described", DESCRIBED.values(), ids=DESCRIBED)
def test_a_tensor_that_cannot_be_is_refused(described):
    tree = msgpack.packb(msgpack.ExtType(1, msgpack.packb(described)))
    with pytest.raises(wire.BadMessage):
        wire.unpack(framed(tree, bytes(8)))


BOMBS = {
    "lists within each other": b"\x91" * 1_000_000,
    "many empty lists": b"\xdd" + struct.pack(">I", 2_000_000) + b"\x90" * 2_000_000,
    "many empty dicts": b"\xdd" + struct.pack(">I", 2_000_000) + b"\x80" * 2_000_000,
    "lists of lengths that are not there": b"\xdd\xff\xff\xff\xff" * 500,
    "an int of a million digits": msgpack.packb(msgpack.ExtType(4, b"9" * 1_000_000)),
    "an extension of another kind": msgpack.packb(msgpack.ExtType(99, b"")),
}


@pytest.mark.parametrize("tree", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_soon(tree):
    start = time.process_time()
    with pytest.raises(wire.BadMessage):
        wire.unpack(framed(tree))
    assert time.process_time() - start < 2.0


def test_many_pieces_without_bytes_are_refused():
    with pytest.raises(wire.BadMessage):
        wire.unpack(framed(b"\xc0", *[b""] * (wire.MOST_PARTS + 1)))


def test_what_is_no_memory_of_tensors_has_a_limit_of_its_own():
    data = wire.pack(["a long text" * 100, torch.zeros(10_000)])
    assert wire.unpack(data, most=2_000)[0].startswith("a long")
    with pytest.raises(wire.BadMessage, match="beside its tensors"):
        wire.unpack(data, most=1_000)


UNUSUAL = {
    "torch.sparse_coo": torch.zeros(2).to_sparse(),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_a_tensor_that_is_not_of_numbers_in_memory_is_named(kind):
    assert wire.unpack(wire.pack(UNUSUAL[kind])) == NotPlain(f"a tensor of another kind ({kind})")


@pytest.mark.parametrize("value", [object(), {1, 2}, print], ids=["object", "set", "function"])
def test_what_is_no_plain_data_is_not_sent(value):
    with pytest.raises(TypeError):
        wire.pack([value])


def test_messages_follow_each_other_on_a_pipe():
    reads, writes = os.pipe()
    for number in range(3):
        wire.send(writes, {"number": number})
    assert [wire.receive(reads)["number"] for _ in range(3)] == [0, 1, 2]
    os.close(writes)
    with pytest.raises(wire.Gone):
        wire.receive(reads)
    os.close(reads)


def test_half_a_message_is_waited_for_until_the_deadline():
    reads, writes = os.pipe()
    os.write(writes, struct.pack("<Q", 100) + b"half")
    with pytest.raises(wire.TooLate):
        wire.receive(reads, time.monotonic() + 0.05)
    os.close(reads)
    os.close(writes)


def test_a_length_beyond_the_limit_is_refused_before_it_is_read():
    reads, writes = os.pipe()
    os.write(writes, struct.pack("<Q", 1 << 62))
    with pytest.raises(wire.BadMessage, match="a message of"):
        wire.receive(reads)
    os.close(reads)
    os.close(writes)
