"""The corpus of the course: the source of Python's standard library, which every machine already has.

`load_corpus()` trains a byte-level BPE tokenizer on it, splits it by file, and keeps the tokens as flat
uint16 files in the cache folder, read back through memory maps. Not handled: vocabularies over 65,536
(uint16), and files that are not UTF-8 (left out).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
import sysconfig
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gpu_utils.errors import W2WError
from gpu_utils.folders import cache_folder
from gpu_utils.model import counting

END_OF_TEXT = "<|endoftext|>"
VALIDATION_SHARE = 0.05
_FORMAT = 1
_SKIP = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip", "__pycache__"}


class CorpusError(W2WError):
    """The corpus cannot be made from what this machine has."""


@dataclass(frozen=True)
class CorpusConfig:
    """What makes one corpus differ from another.

    vocab_size: tokens of the BPE, bytes and the end-of-text token included (257 to 65,536).
    max_bytes: at most this many bytes of source are used; None takes them all (about 11 MB).
    """

    vocab_size: int = 1024
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if not 257 <= self.vocab_size <= 65536:
            raise CorpusError(
                f"vocab_size is {self.vocab_size}; it must lie between 257 (256 bytes and {END_OF_TEXT}) "
                "and 65536 (what uint16 can hold)"
            )


@dataclass(frozen=True)
class SourceFile:
    """One file of the standard library: its name relative to the library's folder, and its size in bytes."""

    name: str
    size: int


def library_files(root: Path | None = None) -> list[SourceFile]:
    """The files of the corpus, in an order that depends only on their names.

    They are sorted by the SHA-256 of the name: an order that mixes packages, so that a prefix of it is a fair
    sample, and that moves little between Python versions.

    Raises CorpusError when the folder holds no Python source (some minimal installs ship byte code only).

    >>> any(file.name == "argparse.py" for file in library_files())
    True
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = set(folders) - _SKIP  # not entered: site-packages alone may hold twenty times as many files
        for path in (Path(folder, name) for name in names if name.endswith(".py")):
            if path.is_file():
                found.append(SourceFile(path.relative_to(root).as_posix(), path.stat().st_size))
    if not found:
        raise CorpusError(f"no Python source in {root}; use a Python whose standard library comes as .py files")
    return sorted(found, key=lambda file: hashlib.sha256(file.name.encode()).digest())


def split_files(files: list[SourceFile], max_bytes: int | None) -> tuple[list[SourceFile], list[SourceFile]]:
    """Split into (train, validation) by whole files: no file has lines in both.

    Files are taken in order, those that would pass max_bytes are left out. A file goes to validation while that
    stays within VALIDATION_SHARE of the bytes, else to train.
    """
    budget = min(sum(file.size for file in files), max_bytes or sys.maxsize)
    train: list[SourceFile] = []
    validation: list[SourceFile] = []
    train_bytes = validation_bytes = 0
    for file in files:
        if train_bytes + validation_bytes + file.size > budget:
            continue
        if validation_bytes + file.size <= VALIDATION_SHARE * budget:
            validation.append(file)
            validation_bytes += file.size
        else:
            train.append(file)
            train_bytes += file.size
    if not train or not validation:
        raise CorpusError(f"{len(files)} files within {budget} bytes do not give a train and a validation part")
    return train, validation


@dataclass(frozen=True)
class Corpus:
    """A tokenized corpus.

    folder: holds tokenizer.json, train.bin and val.bin (uint16, little-endian) and meta.json.
    train_bytes, val_bytes: bytes of UTF-8 text behind each part, to turn nats per token into bits per byte.
    """

    config: CorpusConfig
    folder: Path
    files: int
    train_bytes: int
    val_bytes: int

    @cached_property
    def tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer`: byte-level, so any text survives encode and decode unchanged."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    @cached_property
    def train(self) -> np.ndarray:
        """Train tokens: uint16, one dimension, memory-mapped, read-only."""
        return np.memmap(self.folder / "train.bin", dtype="<u2", mode="r")

    @cached_property
    def val(self) -> np.ndarray:
        """Validation tokens: uint16, one dimension, memory-mapped, read-only."""
        return np.memmap(self.folder / "val.bin", dtype="<u2", mode="r")

    @cached_property
    def unigram_entropy(self) -> float:
        """Entropy of single tokens of the train part, in nats per token.

        The loss of the best model that ignores its context: a model that has learned anything about Python
        must be below it.
        """
        return entropy_nats(np.bincount(self.train, minlength=self.config.vocab_size))

    @cached_property
    def unigram_loss(self) -> float:
        """Loss on the validation files, nats per token, of the frequencies of the train part."""
        return counting.unigram_loss(self.train, self.val, self.config.vocab_size)

    @cached_property
    def bigram_loss(self) -> float:
        """Loss on the validation files, nats per token, of a table of the train part's pairs of neighbours."""
        return counting.bigram_loss(self.train, self.val, self.config.vocab_size)

    def bits_per_byte(self, nats_per_token: float) -> float:
        """Turn a loss into bits per byte of validation text: comparable between vocabularies."""
        return bits_per_byte(nats_per_token, tokens=len(self.val), n_bytes=self.val_bytes)


def entropy_nats(counts: np.ndarray) -> float:
    """Entropy in nats of the distribution with these counts, computed in float64.

    >>> round(entropy_nats(np.array([1, 1, 2])) / math.log(2), 6)  # 1.5 bits
    1.5
    """
    counts = np.asarray(counts, dtype=np.float64)
    total = counts.sum()
    if total <= 0:
        raise ValueError("entropy of no counts is undefined: give at least one count above zero")
    p = counts[counts > 0] / total
    return float(-(p * np.log(p)).sum())


def bits_per_byte(nats_per_token: float, *, tokens: int, n_bytes: int) -> float:
    """Convert nats per token into bits per byte of the text that the tokens stand for.

    >>> bits_per_byte(math.log(256), tokens=1000, n_bytes=1000)  # a uniform guess over bytes
    8.0
    """
    return nats_per_token * tokens / n_bytes / math.log(2)


def draw_batch(
    tokens: np.ndarray, batch: int, length: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw `batch` windows at random places: (inputs, targets), both int64 of shape (batch, length).

    Targets are the inputs one token later. The same generator state gives the same batch.

    >>> x, y = draw_batch(np.arange(100, dtype=np.uint16), 2, 4, np.random.default_rng(0))
    >>> x.shape, bool((y == x + 1).all())
    ((2, 4), True)
    """
    if len(tokens) <= length:
        raise CorpusError(f"{len(tokens)} tokens are too few for windows of {length} and their targets")
    starts = generator.integers(0, len(tokens) - length, size=batch)
    windows = np.stack([tokens[s : s + length + 1] for s in starts]).astype(np.int64)
    return windows[:, :-1], windows[:, 1:]


def load_corpus(config: CorpusConfig | None = None) -> Corpus:
    """The corpus of this machine's standard library; made on first use (seconds), then read from the cache.

    A cache that is incomplete or damaged is made again. Where the cache folder cannot be written, the corpus is
    made in a temporary folder and a warning says so.
    """
    config = config or CorpusConfig()
    files = library_files()
    folder = cache_folder() / "corpus" / _cache_name(config, files)
    cached = _read(config, folder)
    if cached is not None:
        return cached
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=folder.parent, prefix="building-"))
    except OSError as problem:
        building = Path(tempfile.mkdtemp(prefix="w2w-corpus-"))
        warnings.warn(
            f"the corpus cannot be kept in {folder.parent} ({problem.strerror}) and goes to {building}; "
            "set W2W_CACHE to a folder that you can write",
            stacklevel=2,
        )
        folder = building
    try:
        _build(config, files, building)
        if folder != building:
            _move_into_place(config, building, folder)
    except BaseException as problem:
        shutil.rmtree(building, ignore_errors=True)
        if isinstance(problem, OSError):
            raise CorpusError(
                f"the corpus could not be written to {folder.parent} ({problem.strerror}); make room there, or set "
                "W2W_CACHE to another folder"
            ) from problem
        raise
    corpus = _read(config, folder)
    if corpus is None:
        raise CorpusError(f"the corpus in {folder} was damaged while it was written; is the disk full?")
    return corpus


def _cache_name(config: CorpusConfig, files: list[SourceFile]) -> str:
    recipe = json.dumps([_FORMAT, asdict(config), [[file.name, file.size] for file in files]])
    return f"stdlib{sys.version_info.major}{sys.version_info.minor}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def _move_into_place(config: CorpusConfig, building: Path, folder: Path) -> None:
    # A folder is renamed in one step, so that a reader sees a whole corpus or none.
    if folder.exists():
        if _read(config, folder) is not None:  # another process was faster
            shutil.rmtree(building)
            return
        shutil.rmtree(folder)
    os.replace(building, folder)


def _texts(files: list[SourceFile]) -> Iterator[str]:
    root = Path(sysconfig.get_path("stdlib"))
    for file in files:
        try:
            yield (root / file.name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def _build(config: CorpusConfig, files: list[SourceFile], folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    train_files, val_files = split_files(files, config.max_bytes)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(train_files), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))

    meta: dict[str, Any] = {"format": _FORMAT, "files": len(train_files) + len(val_files)}
    end = tokenizer.token_to_id(END_OF_TEXT)
    assert end is not None  # the trainer was told to add it
    for part, part_files in (("train", train_files), ("val", val_files)):
        texts = list(_texts(part_files))
        ids: list[int] = []
        for encoding in tokenizer.encode_batch(texts):
            ids += encoding.ids
            ids.append(end)
        np.asarray(ids, dtype="<u2").tofile(folder / f"{part}.bin")
        meta[f"{part}_bytes"] = sum(len(text.encode()) for text in texts)
    meta["checksums"] = {name: _checksum(folder / name) for name in ("tokenizer.json", "train.bin", "val.bin")}
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))


def _checksum(path: Path) -> int:
    return zlib.crc32(path.read_bytes())


def _read(config: CorpusConfig, folder: Path) -> Corpus | None:
    """The corpus in this folder, or None when it is absent or damaged."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        if any(_checksum(folder / name) != crc for name, crc in meta["checksums"].items()):
            return None
        return Corpus(config, folder, meta["files"], meta["train_bytes"], meta["val_bytes"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
