"""HTTP service for fitted models: predictions, explanations, audits, and a web page for reviewing labels.

A request passes :mod:`~labelgap.serve.middleware` (limits, token, metrics) and reaches its endpoint in
:mod:`~labelgap.serve.app`. Answers come from :mod:`~labelgap.serve.scoring`; work that fits models runs in the
background, in a job of :mod:`~labelgap.serve.jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labelgap.runtime import import_optional
from labelgap.serve.settings import Settings

if TYPE_CHECKING:
    from labelgap.serve.served_models import Models

__all__ = ["Extension", "Settings", "create_app"]

Extension = Callable[[Any, "Models", Settings], None]


def create_app(
    models: Mapping[str, Any], *, settings: Settings | None = None, extensions: Sequence[Extension] = ()
) -> Any:
    """Return an ASGI application that serves fitted models.

    Parameters
    ----------
    models : Models, or mapping of names to fitted estimators
        The models to serve.
    settings : Settings, optional
        Limits and access rules.
    extensions : sequence of callables
        Called as ``extension(app, models, settings)`` after the API's own routes are added, so that their routes come
        last. Add paths that need no token to the set ``app.state.open_paths``, and paths whose refused requests
        should be logged to ``app.state.logged_paths``.

    Returns
    -------
    FastAPI

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import LEML
    >>> model = LEML(1, random_state=0).fit(np.eye(3), np.array([[1, 0], [1, 0], [0, 1]]))
    >>> app = create_app({"toy": model})
    >>> "/v1/models/{name}/predict" in app.openapi()["paths"]
    True
    """
    import_optional("fastapi", "serve")
    from labelgap.serve.app import build_app
    from labelgap.serve.served_models import Models, ServedModel

    if not isinstance(models, Models):
        models = Models([ServedModel(name, model) for name, model in models.items()])
    return build_app(models, settings or Settings(), extensions)
