"""scikit-learn's callbacks: a fit is a task, each of its progress bars a task below it, and each step a leaf."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

from labelgap.runtime import report_progress

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9 has no callbacks

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands for scikit-learn's class where the installed version has none."""

    with_callbacks = None

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def with_fit_task(
    fit: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[Any, Arguments], Result]:
    """Decorate ``fit(estimator, X, Y, ...)`` so that it reports to the callbacks of ``estimator.set_callbacks``.

    Callbacks get the data of the fit, and the fitted estimator when it ends. Each step that :func:`progress` reports
    is a subtask. Without callbacks the decorator adds one call and nothing else.
    """

    @wraps(fit)
    def run(estimator: Any, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if not (hasattr(estimator, "_skl_callbacks") or hasattr(estimator, "_parent_callback_ctx")):
            return fit(estimator, *args, **kwargs)
        return with_callbacks(_run_task)(estimator, fit, *args, **kwargs)

    return run


def _run_task(estimator: Any, fit: Callable[..., Result], X: Any, Y: Any, *args: Any, **kwargs: Any) -> Result:
    task = estimator._init_callback_context(max_subtasks=None)
    task.call_on_fit_task_begin(estimator=estimator, X=X, y=Y)
    with report_progress(_make_display(estimator, task), also=True):
        result = fit(estimator, X, Y, *args, **kwargs)
    task.call_on_fit_task_end(estimator=estimator, X=X, y=Y, reconstruction_attributes=dict)
    return result


def _make_display(estimator: Any, task: Any) -> Any:
    """Return a display of :func:`report_progress` that opens a task for each bar and a leaf for each step."""
    lock = Lock()  # steps of several threads report to one estimator

    @contextmanager
    def display(total: int | None, title: str, done: int) -> Iterator[Callable[[str], None]]:
        with lock:
            part = task.subcontext(title, max_subtasks=None if total is None else total - done)
            part.call_on_fit_task_begin(estimator=estimator)

        def advance(message: str) -> None:
            with lock:
                step = part.subcontext("step")
                step.call_on_fit_task_begin(estimator=estimator)
                step.call_on_fit_task_end(estimator=estimator)

        yield advance
        with lock:
            part.call_on_fit_task_end(estimator=estimator)

    return display
