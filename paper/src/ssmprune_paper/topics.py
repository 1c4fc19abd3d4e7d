"""What words are about: those that occur in the same documents share a topic."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError, need

WORD = re.compile(rb"[a-z']+|[0-9]+")  # of a text in lower case
RARE = 40  # words in fewer documents are not worth learning
COMMON = 0.2  # words in more than this share of the documents are ignored
DIMENSIONS = 100  # of the space in which words are compared

Topics = dict[bytes, int]


def sort_words(documents: Sequence[bytes], topics: int, dimensions: int = DIMENSIONS) -> Topics:
    """Return the number of the topic of every word that is neither rare nor common in these documents.

    Latent semantic analysis: the first singular vectors of words by documents, each entry weighted by how rare its
    word is, say in which company a word occurs; k-means puts words of the same company together.

    dimensions: how many singular vectors.
    """
    purpose = "Topics of words need SciPy"
    sparse, linalg, vq = (need(f"scipy.{name}", "data", purpose) for name in ("sparse", "sparse.linalg", "cluster.vq"))
    counts = [Counter(WORD.findall(document.lower())) for document in documents]
    spread = Counter(word for count in counts for word in count)  # word -> in how many documents
    words = sorted(word for word, often in spread.items() if RARE <= often <= COMMON * len(documents))
    if len(words) < (least := max(2, topics)):
        raise InputError(
            f"Expected at least {least} words that occur in {RARE} documents or more, but in at most {COMMON:.0%} of "
            f"them; these {len(documents)} documents have {len(words)}."
        )
    place = {word: number for number, word in enumerate(words)}
    weight = np.log([len(documents) / spread[word] for word in words])
    known = [{place[word]: often for word, often in count.items() if word in place} for count in counts]
    rows, columns = (
        np.repeat(np.arange(len(known)), list(map(len, known))),
        np.concatenate([list(row) for row in known]),
    )
    often = np.concatenate([list(row.values()) for row in known])
    table = sparse.csr_matrix(((1 + np.log(often)) * weight[columns], (rows, columns)), (len(documents), len(words)))
    smaller = min(table.shape)
    _, _, company = linalg.svds(table, k=min(dimensions, smaller - 1), v0=np.ones(smaller))  # else it starts at random
    company = company.T / np.linalg.norm(company, axis=0)[:, None]
    first = np.random.default_rng(0).permutation(len(words))[:topics]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a topic that has lost all its words does no harm
        _, topic = vq.kmeans2(company, company[first], iter=50, minit="matrix")
    return dict(zip(words, topic.tolist(), strict=True))


def shares(text: bytes, topics: Topics, count: int) -> NDArray[np.float32]:
    """Return for each of `count` topics what share of a text its words make up, in bytes.

    >>> shares(b"The Ghost!", {b"ghost": 1}, 3)
    array([0. , 0.5, 0. ], dtype=float32)
    """
    bytes_of = np.zeros(count, np.float32)
    for word in WORD.findall(text.lower()):
        if word in topics:
            bytes_of[topics[word]] += len(word)
    return bytes_of / np.float32(max(1, len(text)))
