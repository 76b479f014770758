"""A review session: the data, the store of verdicts, and the audit and retraining in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labelgap.gaps import Audit, audit
from labelgap.inputs import clone_with_seed
from labelgap.observations import Labels
from labelgap.serve.jobs import Job
from labelgap.serve.reviews import statistics
from labelgap.serve.reviews.learning import Shares, learn_queue
from labelgap.serve.reviews.retraining import Retrained, retrain, save_next_to
from labelgap.serve.reviews.review_data import ReviewData, export_labels, export_log
from labelgap.serve.reviews.store import Kind, Review, Store, Suggestion, SuggestionQuery

MIN_STORED_PROBABILITY = 0.01  # less probable suggestions are not stored
MAX_STORED_SUGGESTIONS = 200_000  # of each kind
LEARN_EVERY = 20  # verdicts
N_NEXT = 100  # suggestions, whose right ones are expected
CLOSE_SECONDS = 10.0  # for writing what was learned


class ReviewSession:
    """Everything behind the review page.

    Parameters
    ----------
    data : ReviewData
        Documents, labels and model.
    store : Store
        Suggestions and reviews.
    model_path : path, optional
        The file of the model; a retrained model is saved next to it.
    folds : int, default=5
        Number of models in an audit.
    seed : int, default=0
        Random seed of audit and retraining.
    """

    def __init__(
        self, data: ReviewData, store: Store, *, model_path: Path | None = None, folds: int = 5, seed: int = 0
    ) -> None:
        self.data, self.store, self.model_path = data, store, model_path
        self.folds, self.seed = folds, seed
        self.audit_job, self.retrain_job, self.learn_job = Job("audit"), Job("retrain"), Job("learn")
        self._suggestions_lock = threading.Lock()  # held by those who write suggestions

    def close(self) -> None:
        """Stop the background jobs and close the store."""
        self.audit_job.stop()
        self.retrain_job.stop()
        self.learn_job.wait(CLOSE_SECONDS)
        self.store.close()

    # --- audit ------------------------------------------------------------------------------------------------------

    @property
    def audited(self) -> bool:
        """Whether the store has suggestions of an audit."""
        return self.store.meta("shares") is not None

    def start_first_audit(self) -> None:
        """Start an audit if the store has no suggestions yet, or only those of an audit that did not end."""
        if not self.audited or self.store.meta("is_part") == "1":
            self.start_audit()

    def start_audit(self) -> bool:
        """Start an audit of the labels with the current verdicts; return False if one is running already."""
        return self.audit_job.start(self.run_audit)

    def run_audit(self) -> None:
        """Audit the labels with the current verdicts, and store the suggestions for undecided cells.

        The first audit stores those of the rows scored so far after each fold, so that people can begin.
        """
        reviews = self.store.current_reviews()
        labels = self.data.apply_reviews(reviews)
        estimator = clone_with_seed(self.data.model, self.seed)
        early = None if self.audited else partial(self._store_audit, labels, reviews, is_part=True)
        options: dict[str, Any] = {"n_folds": self.folds, "random_state": self.seed, "callback": early}
        self._store_audit(labels, reviews, audit(self.data.texts, labels, estimator, **options), is_part=False)

    def _store_audit(self, labels: Labels, reviews: list[Review], result: Audit, *, is_part: bool) -> None:
        """Store the suggestions of an audit for cells that were undecided when it began; learn from the others."""
        decided = {(review.row, review.label) for review in statistics.select_decided(reviews)}
        suggestions = (
            suggestion
            for suggestion in self._likely_suggestions(result)
            if (suggestion.row, suggestion.label) not in decided
        )
        shares = Shares(
            np.bincount(labels.positives.indices, minlength=labels.shape[1]).tolist(),
            result.written.tolist(),
            *(result.share.overall, result.share.low, result.share.high),
            n_wrong=float(result.doubtful.probabilities.sum()),
            n_added=statistics.count_added(reviews),
        ).to_json()
        with self._suggestions_lock:
            self.store.replace_suggestions(suggestions, stated=shares, shares=shares, is_part=str(int(is_part)))
        self.run_learning()

    def _likely_suggestions(self, result: Audit) -> Iterator[Suggestion]:
        for k, (row, label, kind, probability) in enumerate(
            result.records(self.data.label_names, MAX_STORED_SUGGESTIONS)
        ):
            if probability >= MIN_STORED_PROBABILITY:
                place = float(result.places[k]) if kind == "missing" else 1.0
                yield Suggestion(row, label, kind, probability, place)

    # --- learning from verdicts -------------------------------------------------------------------------------------

    def learn_in_background(self) -> None:
        """Start to learn from the verdicts if there are enough new ones."""
        if self.store.count_since(self.learned) >= LEARN_EVERY:
            self.learn_job.start(self.run_learning)

    def run_learning(self) -> None:
        """Set the probabilities of undecided suggestions, and the share of missing labels, to what verdicts teach.

        It is :func:`labelgap.gaps.learn`, from what the last audit stated and all current verdicts.
        """
        with self._suggestions_lock:
            stated, learned = self.store.meta("stated"), self.store.newest_number()
            reviews = statistics.select_decided(self.store.current_reviews())
            if stated is None or not (reviews or self.learned):
                return
            shares, suggestions = learn_queue(
                Shares.of_json(stated), self.store.stated_suggestions(), reviews, self.data.label_names
            )
            self.store.set_probabilities(suggestions, shares=shares.to_json(), learned=str(learned))

    @property
    def learned(self) -> int:
        """The number in the log of the newest entry that the order of the queue has learned from; 0 if none."""
        return int(self.store.meta("learned") or 0)

    # --- documents and verdicts -------------------------------------------------------------------------------------

    def document(self, row: int) -> dict[str, Any]:
        """Return a document: its text, its labels with verdicts applied, and the suggestions for it."""
        reviews = self.store.current_reviews(row)
        verdicts = {review.label: review.verdict for review in reviews}
        return {
            "row": row,
            "data_id": self.data.data_id,
            "parts": [{"column": name, "text": text} for name, text in self.data.text_parts(row)],
            "labels": self.data.current_labels(row, reviews),
            "suggestions": [
                {
                    "label": label,
                    "kind": kind,
                    "probability": probability,
                    "verdict": verdicts.get(label),
                    "opinions": self.opinions(row, label) if verdicts.get(label) == "conflict" else [],
                }
                for _, label, kind, probability, _ in self.store.suggestions_of(row)
            ],
        }

    def review_answer(self, review: Review) -> dict[str, Any]:
        """Return an entry of the log with the current verdict on its cell and the labels of its document."""
        reviews = self.store.current_reviews(review.row)
        verdicts = {other.label: other.verdict for other in reviews}
        return {
            **review._asdict(),
            "undone_entry_id": None if review.undoes is None else self.store.review(review.undoes).entry_id,
            "current": verdicts.get(review.label),
            "learned": self.learned,
            "opinions": self.opinions(review.row, review.label) if review.label in verdicts else [],
            "labels": self.data.current_labels(review.row, reviews),
        }

    def describe_file(self) -> dict[str, Any]:
        """Return the path of the file of reviews, the number of its current verdicts, and whether it was created."""
        store = self.store
        return {"file": str(store.path), "verdicts": len(store.current_reviews()), "new": store.is_new}

    def opinions(self, row: int, label: str) -> list[dict[str, str]]:
        """Return who said what about a cell, and when."""
        names = ("reviewer", "verdict", "made_at")
        return [{name: getattr(review, name) for name in names} for review in self.store.opinions(row, label)]

    # --- statistics -------------------------------------------------------------------------------------------------

    def counts(self, least: float) -> dict[str, Any]:
        """Return the number of verdicts, and of open suggestions with at least some probability."""
        counts: dict[str, Any] = statistics.count_verdicts(self.store.current_reviews())
        for kind in ("missing", "doubtful"):
            number, expected = SuggestionQuery(kind=kind, least=least).count(self.store)
            next_hundred = statistics.count_next(SuggestionQuery(kind=kind, least=least).page(self.store, N_NEXT))
            counts[kind] = {"open": number, "expected": expected, "next_hundred": next_hundred}
        return counts

    def stats(self, kind: Kind) -> dict[str, Any]:
        """Return the statistics of the reviews of one kind, and the frequencies of the labels."""
        reviews = self.store.current_reviews()
        of_kind = [review for review in reviews if review.kind == kind]
        stored, is_whole = self.store.meta("shares"), self.store.meta("is_part") != "1"
        shares = None if stored is None else Shares.of_json(stored)
        written = np.bincount(self.data.labels.positives.indices, minlength=len(self.data.label_names))
        return {
            "counts": statistics.count_verdicts(of_kind),
            "precision": statistics.compute_precision(of_kind),
            "curve": statistics.compute_precision_curve(of_kind),
            "calibration": statistics.compute_calibration(of_kind),
            "next_hundred": statistics.count_next(SuggestionQuery(kind=kind).page(self.store, N_NEXT)),
            "right": statistics.estimate_right(SuggestionQuery(kind=kind).at_random(self.store), of_kind),
            "still_missing": shares.count_missing(statistics.count_added(reviews)) if shares and is_whole else None,
            "labels": statistics.count_labels(
                self.data.label_names, written.tolist(), None if shares is None else shares.expected, reviews
            ),
        }

    # --- export and retraining --------------------------------------------------------------------------------------

    def export_labels(self) -> tuple[str, bytes]:
        """Return a file name and the table with verdicts applied."""
        return export_labels(self.data, self.store.current_reviews())

    def export_log(self, ending: str) -> tuple[str, bytes]:
        """Return a file name and the log of all reviews."""
        return export_log(self.store.log(), self.store.current_reviews(), ending)

    @property
    def retrained(self) -> Retrained | None:
        """The retrained model and its comparison with the old one; None until retraining is done."""
        return self.retrain_job.result

    def start_retraining(self) -> bool:
        """Start retraining on the reviewed labels; return False if it is running already."""
        reviews = self.store.current_reviews()
        if not any(review.verdict == "accept" for review in reviews):
            raise ValueError("No suggestion is accepted yet, so the labels have not changed; accept some first.")
        return self.retrain_job.start(lambda: retrain(self.data, reviews, self.seed))

    def save_retrained(self) -> Path:
        """Save the retrained model next to the old one, under a new name."""
        if self.retrained is None:
            raise ValueError("There is no retrained model; retrain first.")
        if self.model_path is None:
            raise ValueError("The path of the served model is unknown; restart with labelgap serve to save models.")
        return save_next_to(self.retrained.model, self.model_path)


def open_session(database: Path, data: ReviewData, **options: Any) -> ReviewSession:
    """Open the store of reviews."""
    return ReviewSession(data, Store(database, data.identity), **options)
