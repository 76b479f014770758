"""Can the probabilities of an audit be believed? Tags are removed and wrong ones added, then both are searched for.

The generated table has complete tags: a tag puts words of its own into a text, how many differs between tags, and
the other words say nothing. On the Stack Exchange tables tags that people forgot or wrote wrongly themselves count
as errors of the audit, so its probabilities look too high there.

For each list the table shows bins of the stated probability: its mean, the share that was planted, and the number of
cells, draws pooled.

    python -m benchmarks.planted [generated robotics cooking] [--draws 5] [--rows 4000]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap import BinaryRelevance, audit
from labelgap.datasets import read_documents
from labelgap.estimators.tagger import learn_words

EDGES = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01])
MIN_CELLS = 400
RATES = [(removed, added) for removed in (0.1, 0.3) for added in (0.03, 0.1)]


def generated(n_rows: int, seed: int, n_tags: int = 100, n_words: int = 20) -> tuple[list[str], NDArray[np.bool_]]:
    """Return texts and their complete tags."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, n_tags + 1) ** 0.7
    Y = rng.random((n_rows, n_tags)) < 2.5 * frequency / frequency.sum()
    vocabulary, loudness = n_tags * n_words // 2, rng.uniform(2, 8, n_tags)
    own = np.array([rng.choice(vocabulary, n_words, replace=False) for _ in range(n_tags)])
    common, ranks = 1 / np.arange(1, vocabulary + 1), 1 / np.arange(1, n_words + 1)
    common = rng.permutation(common / common.sum())
    texts = []
    for row in Y:
        words = [rng.choice(own[j], rng.poisson(loudness[j]), p=ranks / ranks.sum()) for j in np.flatnonzero(row)]
        words.append(rng.choice(vocabulary, rng.poisson(12), p=common))
        texts.append(" ".join(f"w{word}" for word in rng.permutation(np.concatenate(words))))
    return texts, Y


def stack_exchange(name: str, n_rows: int, seed: int) -> tuple[list[str], NDArray[np.bool_]]:
    """Return texts and tags of a sample of rows of a Stack Exchange table."""
    path = Path(os.environ["LABELGAP_DATA"]) / "stackexchange-text" / f"{name}.csv.zip"
    documents = read_documents(path, ["title", "content"], tags="tags", least=5)
    rows = np.sort(np.random.default_rng(seed).permutation(len(documents.texts))[:n_rows])
    Y = sp.csr_array(documents.Y)[rows].toarray() > 0
    return [documents.texts[i] for i in rows], Y[:, Y.sum(axis=0) >= 5]


def plant(Y: NDArray[np.bool_], removed: float, added: float, seed: int) -> NDArray[np.bool_]:
    """Remove each tag with a probability, and add wrong ones in proportion to the frequency of a tag."""
    rng = np.random.default_rng(seed)
    return (Y & (rng.random(Y.shape) >= removed)) | (~Y & (rng.random(Y.shape) < added * Y.mean(axis=0)))


def show_bins(title: str, p: NDArray, hits: NDArray) -> float:
    """Print the bins of a list; return the largest error of bins over 400 cells."""
    number, points, worst = np.digitize(p, EDGES), [], 0.0
    for i in range(1, len(EDGES)):
        mine = number == i
        if mine.sum() >= MIN_CELLS // 4:
            points.append(f"{p[mine].mean():.2f}→{hits[mine].mean():.2f} ({mine.sum()})")
        if mine.sum() >= MIN_CELLS:
            worst = max(worst, abs(float(p[mine].mean() - hits[mine].mean())))
    print(f"  {title:9s} largest error {worst:.3f}: {'  '.join(points)}", flush=True)
    return worst


def check(name: str, removed: float, added: float, draws: int, n_rows: int, estimator: Any) -> None:
    """Print the reliability of both lists, and the estimated share of missing tags."""
    lists: dict[str, list[tuple[NDArray, NDArray]]] = {"missing": [], "doubtful": []}
    shares = []
    for seed in range(draws):
        texts, Y = generated(n_rows, seed) if name == "generated" else stack_exchange(name, n_rows, seed)
        X = learn_words(texts, min_count=2)(texts, "float32")
        written = plant(Y, removed, added, 100 + seed)
        found = audit(X, written.astype(np.int8), estimator, random_state=seed)
        planted = {"missing": Y & ~written, "doubtful": written & ~Y}
        for kind, cells in planted.items():
            listed = getattr(found, kind)
            lists[kind].append((listed.probabilities, cells[listed.rows, listed.labels]))
        shares.append((1 - (Y & written).sum() / Y.sum(), found.share_missing, *found.share_missing_interval))
    truth, share, low, high = np.mean(shares, axis=0)
    said = f"said missing {share:.3f} ({low:.3f} to {high:.3f}), {truth:.3f} removed"
    print(f"{name}: {removed:.0%} removed, {added:.0%} added; {said}")
    for kind, parts in lists.items():
        p, hits = (np.concatenate(part) for part in zip(*parts, strict=True))
        show_bins(kind, p, hits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["generated", "robotics", "cooking"])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4000)
    options = parser.parse_args()
    for name in options.names:
        for removed, added in RATES:
            check(name, removed, added, options.draws, options.rows, BinaryRelevance(1.0, loss="squared"))


if __name__ == "__main__":
    main()
