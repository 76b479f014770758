"""Models behind HTTP: predictions, reasons, forgotten labels, and a page to review them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labelgap.runtime import optional
from labelgap.serve.settings import Settings

if TYPE_CHECKING:
    from labelgap.serve.models import Models

__all__ = ["Extension", "Settings", "create_app"]

Extension = Callable[[Any, "Models", Settings], None]


def create_app(
    models: Mapping[str, Any], *, settings: Settings | None = None, extensions: Sequence[Extension] = ()
) -> Any:
    """Return an ASGI application that serves fitted models.

    Parameters
    ----------
    models : Models, or mapping of names to fitted estimators
        What is served.
    settings : Settings, optional
        Its limits.
    extensions : sequence of callables
        Called as ``extension(app, models, settings)`` once the API has its routes; what they add comes after those.
        A path that may be read without a token goes into the set ``app.state.open_paths``.

    Returns
    -------
    FastAPI

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import LEML
    >>> model = LEML(1, random_state=0).fit(np.eye(3), np.array([[1, 0], [1, 0], [0, 1]]))
    >>> app = create_app({"mine": model})
    >>> "/v1/models/{name}/predict" in app.openapi()["paths"]
    True
    """
    optional("fastapi", "serve")
    from labelgap.serve.app import build
    from labelgap.serve.models import Models, Served

    if not isinstance(models, Models):
        models = Models([Served(name, model) for name, model in models.items()])
    return build(models, settings or Settings(), extensions)
