import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_utils.model import corpus as module
from gpu_utils.model import counting
from gpu_utils.model.corpus import (
    CorpusConfig,
    CorpusError,
    SourceFile,
    bits_per_byte,
    draw_batch,
    entropy_nats,
    library_files,
    load_corpus,
    split_files,
)

TINY = CorpusConfig(vocab_size=300, max_bytes=200_000)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("W2W_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("W2W_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_corpus(TINY)


@pytest.fixture
def folder(cache, corpus):
    """The finished corpus as it lies in this test's own cache."""
    return Path(shutil.copytree(corpus.folder, cache / "corpus" / corpus.folder.name))


def test_files_come_in_an_order_that_only_their_names_decide():
    names = [file.name for file in library_files()]
    assert names == [file.name for file in library_files()]
    assert {"argparse.py", "json/decoder.py"} <= set(names)
    assert not [name for name in names if "test" in name.split("/") or "site-packages" in name.split("/")]


def test_files_are_those_that_a_walk_through_every_folder_finds(tmp_path):
    for name in (
        "a.py",
        "json/b.py",
        "json/test/c.py",
        "site-packages/d.py",
        "deep/er/e.py",
        "deep/tests/f.py",
        "g.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "folder.py").mkdir()
    assert {(file.name, file.size) for file in library_files(tmp_path)} == {
        ("a.py", 6),
        ("json/b.py", 6),
        ("deep/er/e.py", 6),
    }


def test_a_library_without_source_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"no Python source"):
        library_files(tmp_path)


@given(st.lists(st.integers(1, 1000), min_size=60, max_size=200), st.integers(5_000, 40_000))
def test_train_and_validation_share_no_file_and_stay_within_the_budget(sizes, budget):
    files = [SourceFile(str(number), size) for number, size in enumerate(sizes)]
    try:
        train, validation = split_files(files, budget)
    except CorpusError:
        assert min(sizes) > 0.05 * min(budget, sum(sizes))  # only when no file is small enough for validation
        return
    assert not set(train) & set(validation)
    used = sum(file.size for file in train + validation)
    assert used <= budget
    assert sum(file.size for file in validation) <= 0.05 * budget


def test_tokens_decode_to_the_source_they_came_from(corpus):
    train, validation = split_files(library_files(), TINY.max_bytes)
    for tokens, files in ((corpus.train, train), (corpus.val, validation)):
        texts = corpus.tokenizer.decode(tokens.tolist(), skip_special_tokens=False).split(module.END_OF_TEXT)
        want = list(module._texts(files))
        assert texts[:-1] == want
        assert texts[-1] == ""
    assert corpus.train_bytes == sum(len(text.encode()) for text in module._texts(train))
    assert corpus.files == len(train) + len(validation)


@settings(deadline=None)
@given(text=st.text())
def test_any_text_survives_the_tokenizer(corpus, text):
    ids = corpus.tokenizer.encode(text).ids
    assert corpus.tokenizer.decode(ids) == text
    assert all(0 <= token < 300 for token in ids)


def test_the_second_load_reads_the_cache(cache, monkeypatch):
    first = load_corpus(TINY)
    monkeypatch.setattr(module, "_build", lambda *args: pytest.fail("made again"))
    second = load_corpus(TINY)
    assert np.array_equal(first.train, second.train)
    assert second.train.dtype == np.uint16
    assert isinstance(second.train, np.memmap)
    with pytest.raises(ValueError):
        second.train[0] = 1


def test_two_builds_give_the_same_bytes(corpus):
    again = load_corpus(TINY)  # in another cache folder
    assert again.folder != corpus.folder
    for name in ("tokenizer.json", "train.bin", "val.bin", "meta.json"):
        assert (again.folder / name).read_bytes() == (corpus.folder / name).read_bytes(), name


@pytest.mark.parametrize("name", ["train.bin", "val.bin", "tokenizer.json", "meta.json"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_cache_is_made_again(corpus, folder, name, damage):
    path = folder / name
    raw = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(raw[: len(raw) // 2])
    else:
        path.write_bytes(bytes(255 - b for b in raw))
    again = load_corpus(TINY)
    assert again.folder == folder
    assert np.array_equal(again.train, corpus.train)
    assert path.read_bytes() == (corpus.folder / name).read_bytes()


def test_meta_that_is_json_but_not_ours_is_made_again(corpus, folder):
    for wrong in ([], {"checksums": 3}, {"checksums": {}}, None):
        (folder / "meta.json").write_text(json.dumps(wrong))
        again = load_corpus(TINY)
        assert again.folder == folder
        assert np.array_equal(again.val, corpus.val), wrong


def test_no_half_made_corpus_stays_behind_when_building_fails(cache, monkeypatch):
    def fail(config, files, folder):
        (folder / "train.bin").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_build", fail)
    with pytest.raises(CorpusError, match=r"No space left on device.*W2W_CACHE"):
        load_corpus(TINY)
    assert list((cache / "corpus").iterdir()) == []


def test_where_the_cache_cannot_be_written_a_temporary_folder_serves(tmp_path, monkeypatch, corpus):
    (tmp_path / "file").write_text("a file where a folder should be")
    monkeypatch.setenv("W2W_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="set W2W_CACHE"):
        made = load_corpus(TINY)
    assert np.array_equal(made.train, corpus.train)


def test_two_processes_that_build_at_once_both_get_the_corpus(cache):
    code = (
        "from gpu_utils.model.corpus import *; c = load_corpus(CorpusConfig(vocab_size=300, max_bytes=200_000));"
        "print(len(c.train), c.folder)"
    )
    environment = {**os.environ, "W2W_CACHE": str(cache)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1] != ""
    assert len(list((cache / "corpus").iterdir())) == 1


def test_entropy_of_known_distributions():
    assert entropy_nats(np.array([5])) == 0
    assert entropy_nats(np.full(1024, 3)) == pytest.approx(math.log(1024), rel=1e-14)
    p = np.array([0.5, 0.25, 0.125, 0.125])
    assert entropy_nats(1000 * p) == pytest.approx(1.75 * math.log(2), rel=1e-14)
    with pytest.raises(ValueError, match="undefined"):
        entropy_nats(np.zeros(4))


def test_the_unigram_entropy_is_the_loss_of_guessing_by_frequency(corpus):
    counts = np.bincount(corpus.train, minlength=300)
    logp = np.log(np.maximum(counts, 1) / counts.sum())
    assert corpus.unigram_entropy == pytest.approx(float(-logp[corpus.train].mean()), rel=1e-12)
    assert 3 < corpus.unigram_entropy < math.log(300)


def test_the_counted_losses_are_those_of_tables_written_out(corpus):
    train, validation = (np.asarray(part[:3000]).astype(np.int64) for part in (corpus.train, corpus.val))
    frequency = np.bincount(train, minlength=300) + 1.0
    frequency /= frequency.sum()
    table = np.zeros((300, 300))
    np.add.at(table, (train[:-1], train[1:]), 1)
    likely = (table + 10 * frequency) / (table.sum(1, keepdims=True) + 10)
    assert likely.sum(1) == pytest.approx(1)
    assert counting.unigram_loss(train, validation, 300) == pytest.approx(-np.log(frequency[validation]).mean())
    by_hand = -np.log(likely[validation[:-1], validation[1:]]).mean()
    assert counting.bigram_loss(train, validation, 300) == pytest.approx(by_hand)
    assert corpus.bigram_loss < corpus.unigram_loss < math.log(300)


def test_bits_per_byte_does_not_depend_on_how_text_is_cut_into_tokens():
    # 1000 bytes at 2 bits each, as 1000 tokens of one byte or 250 of four.
    assert bits_per_byte(2 * math.log(2), tokens=1000, n_bytes=1000) == pytest.approx(2)
    assert bits_per_byte(8 * math.log(2), tokens=250, n_bytes=1000) == pytest.approx(2)


def test_batches_repeat_with_their_seed_and_reach_both_ends():
    tokens = np.arange(50, dtype=np.uint16)
    x, y = draw_batch(tokens, 4000, 8, np.random.default_rng(1))
    again, _ = draw_batch(tokens, 4000, 8, np.random.default_rng(1))
    other, _ = draw_batch(tokens, 4000, 8, np.random.default_rng(2))
    assert np.array_equal(x, again)
    assert not np.array_equal(x, other)
    assert (y == x + 1).all()
    assert x.min() == 0
    assert y.max() == 49
    assert x.dtype == y.dtype == np.int64


def test_a_corpus_shorter_than_a_window_is_refused():
    with pytest.raises(CorpusError, match="8 tokens are too few for windows of 8"):
        draw_batch(np.arange(8, dtype=np.uint16), 1, 8, np.random.default_rng(0))


@pytest.mark.parametrize("size", [256, 65537])
def test_a_vocabulary_that_does_not_fit_is_refused(size):
    with pytest.raises(CorpusError, match=f"vocab_size is {size}"):
        CorpusConfig(vocab_size=size)
