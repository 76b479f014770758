"""The desk at which labels are reviewed: the documents, the model, the store, and the work in the background."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from labelgap.commands.gaps import seeded_like
from labelgap.gaps import Audit, audit
from labelgap.serve.reviews import exporting, retraining, statistics
from labelgap.serve.reviews.jobs import Job, Watched
from labelgap.serve.reviews.material import Material
from labelgap.serve.reviews.queue import Choice
from labelgap.serve.reviews.store import Review, Store, Suggestion

LEAST_KEPT = 0.01  # suggestions that are less likely are not kept
MOST_KEPT = 200_000  # of either kind


class Desk:
    """Everything behind the page.

    Parameters
    ----------
    material : Material
        Documents, labels, model.
    store : Store
        Where suggestions and reviews are.
    model_path : path, optional
        The file of the model, next to which a new one may be saved.
    folds : int, default=5
        The models of an audit.
    seed : int, default=0
        Makes audit and retraining repeatable.
    """

    def __init__(
        self, material: Material, store: Store, *, model_path: Path | None = None, folds: int = 5, seed: int = 0
    ) -> None:
        self.material, self.store, self.model_path = material, store, model_path
        self.folds, self.seed = folds, seed
        self.auditing, self.retraining = Job("audit"), Job("retrain")
        self.retrained: retraining.Retrained | None = None

    def close(self) -> None:
        """Stop what goes on in the background, and close the store."""
        self.auditing.stop()
        self.retraining.stop()
        self.store.close()

    # --- audit ------------------------------------------------------------------------------------------------------

    @property
    def audited(self) -> bool:
        """Whether there are suggestions."""
        return self.store.meta("expected") is not None

    def start_audit(self) -> bool:
        """Look for forgotten and doubtful labels in the background; False where that is going on already."""
        return self.auditing.start(self._audit, self.folds + 1)

    def _audit(self, step: Callable[[str], None]) -> None:
        numbers = iter(range(1, self.folds + 1))
        watched = Watched(
            seeded_like(self.material.model, self.seed),
            lambda: step(f"Fitting model {next(numbers)} of {self.folds}"),
        )
        present = self.store.present()
        labels = self.material.reviewed(present)
        found = audit(self.material.texts, labels, watched, n_folds=self.folds, random_state=self.seed)
        step("Keeping the suggestions")
        written = np.bincount(labels.positives.indices, minlength=labels.shape[1])
        expected = json.dumps((written + found.n_missing).round(3).tolist())
        settled = {(one.row, one.label) for one in statistics.decided(present)}
        kept = (one for one in self._suggestions(found) if (one.row, one.label) not in settled)
        self.store.replace_suggestions(kept, expected=expected)

    def _suggestions(self, found: Audit) -> Iterator[Suggestion]:
        for row, label, kind, probability in found.records(self.material.label_names, MOST_KEPT):
            if probability >= LEAST_KEPT:
                yield Suggestion(row, label, kind, probability)

    # --- documents --------------------------------------------------------------------------------------------------

    def document(self, row: int) -> dict[str, Any]:
        """Return a document: its text, the labels that it has now, and what is suggested for it."""
        verdicts = {one.label: one.verdict for one in self._reviews_of(row)}
        suggested = self.store.select(
            "SELECT label, kind, probability FROM suggestion WHERE row = ? ORDER BY probability DESC", row
        )
        return {
            "row": row,
            "parts": [{"column": name, "text": text} for name, text in self.material.parts(row)],
            "labels": self.labels_now(row),
            "suggestions": [
                {"label": label, "kind": kind, "probability": p, "verdict": verdicts.get(label)}
                for label, kind, p in suggested
            ],
        }

    def labels_now(self, row: int) -> list[str]:
        """Return the labels of a document, verdicts applied."""
        changed = {one.label: one.kind == "missing" for one in self._reviews_of(row) if one.verdict == "accept"}
        kept = [label for label in self.material.labels_of(row) if changed.get(label, True)]
        return kept + [label for label, there in changed.items() if there and label not in kept]

    def _reviews_of(self, row: int) -> list[Review]:
        found = self.store.select(f"SELECT {', '.join(Review._fields)} FROM present WHERE row = ? ORDER BY id", row)
        return [Review(*one) for one in found]

    # --- statistics -------------------------------------------------------------------------------------------------

    def counts(self, least: float) -> dict[str, Any]:
        """Return how many verdicts there are, and how many suggestions are open."""
        found: dict[str, Any] = statistics.counts(self.store.present())
        for kind in ("missing", "doubtful"):
            number, expected = Choice(kind=kind, least=least).count(self.store)
            found[kind] = {"open": number, "expected": expected}
        return found

    def stats(self, kind: str) -> dict[str, Any]:
        """Return what the reviews of one kind say so far, and the distribution of labels."""
        present = self.store.present()
        mine = [one for one in present if one.kind == kind]
        expected = self.store.meta("expected")
        written = np.bincount(self.material.labels.positives.indices, minlength=len(self.material.label_names))
        return {
            "counts": statistics.counts(mine),
            "precision": statistics.precision(mine),
            "curve": statistics.curve(mine),
            "calibration": statistics.calibration(mine),
            "labels": statistics.distribution(
                self.material.label_names, written.tolist(), json.loads(expected) if expected else None, present
            ),
        }

    # --- export and retraining --------------------------------------------------------------------------------------

    def export_labels(self) -> tuple[str, bytes]:
        """Return a file name and the table with the verdicts applied."""
        return exporting.export_labels(self.material, self.store.present())

    def export_log(self, ending: str) -> tuple[str, bytes]:
        """Return a file name and the log of all reviews."""
        return exporting.export_log(self.store.log(), self.store.present(), ending)

    def start_retraining(self) -> bool:
        """Fit on the reviewed labels in the background; False where that is going on already."""
        if not any(one.verdict == "accept" for one in self.store.present()):
            raise ValueError("No suggestion has been accepted, so the labels are as they were; review some first.")
        return self.retraining.start(self._retrain, retraining.steps())

    def _retrain(self, step: Callable[[str], None]) -> None:
        self.retrained = None
        self.retrained = retraining.retrain(self.material, self.store.present(), step, self.seed)

    def save_retrained(self) -> Path:
        """Save the new model next to the old one, under a name of its own."""
        if self.retrained is None:
            raise ValueError("There is no new model; retrain first.")
        if self.model_path is None:
            raise ValueError("The server does not know the file of its model, so there is no place next to it.")
        return retraining.save_beside(self.retrained.model, self.model_path)


def open_desk(database: Path, material: Material, **options: Any) -> Desk:
    """Open the store of reviews and begin the audit where there is none yet."""
    desk = Desk(material, Store(database, material.identity), **options)
    if not desk.audited:
        desk.start_audit()
    return desk
