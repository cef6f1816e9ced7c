"""Language models that only count: how often a token occurs, and how often it follows another one.

They need no training and set the lines that a trained model has to beat. Not handled: contexts of two tokens and more.
"""

from __future__ import annotations

import numpy as np

BACKOFF = 10
"""A row of the bigram table is mixed with the frequencies as if it held this many pairs more."""


def unigram_loss(train: np.ndarray, validation: np.ndarray, vocab_size: int) -> float:
    """Mean loss on `validation`, nats per token, of the frequencies of `train` (both: tokens, one dimension).

    Every token is counted once more than it occurs, so that none is impossible.

    >>> tokens = np.array([0, 1, 0, 1, 0, 1])
    >>> round(unigram_loss(tokens, tokens, vocab_size=2), 4)  # ln 2: two tokens, equally likely
    0.6931
    """
    return float(-np.log(_frequencies(train, vocab_size)[validation]).mean())


def bigram_loss(train: np.ndarray, validation: np.ndarray, vocab_size: int) -> float:
    """Mean loss on `validation`, nats per token, of a table of the pairs in `train` (both: tokens, one dimension).

    p(b after a) = (pairs (a, b) + BACKOFF p(b)) / (pairs (a, any) + BACKOFF), with p(b) as in unigram_loss; the first
    token of `validation` follows nothing and does not count. Only pairs that occur take memory.

    >>> tokens = np.array([0, 1] * 1000)
    >>> bigram_loss(tokens, tokens, vocab_size=2) < 0.01  # what follows is nearly certain
    True
    """
    pairs, times = np.unique(_pairs(train, vocab_size), return_counts=True)
    wanted = _pairs(validation, vocab_size)
    at = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
    seen = np.where(pairs[at] == wanted, times[at], 0)
    of_first = np.bincount(train[:-1], minlength=vocab_size)[validation[:-1]]
    likely = (seen + BACKOFF * _frequencies(train, vocab_size)[validation[1:]]) / (of_first + BACKOFF)
    return float(-np.log(likely).mean())


def _frequencies(tokens: np.ndarray, vocab_size: int) -> np.ndarray:
    counts = np.bincount(tokens, minlength=vocab_size) + 1
    return counts / counts.sum()


def _pairs(tokens: np.ndarray, vocab_size: int) -> np.ndarray:
    """A number for each pair of neighbours: int64, one fewer than tokens."""
    return tokens[:-1].astype(np.int64) * vocab_size + tokens[1:]
