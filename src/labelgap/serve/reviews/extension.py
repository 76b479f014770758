"""The page and what is behind it, as an extension of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from labelgap.commands.inputs import Columns

PAGE = Path(__file__).parent / "page"
FRESH = {"Cache-Control": "no-cache"}
Extension = Callable[[Any, Any, Any], None]


def make_extension(
    database: Path,
    data: Path,
    model_name: str | None = None,
    *,
    columns: Columns | None = None,
    model_path: Path | None = None,
    folds: int = 5,
    seed: int = 0,
) -> Extension:
    """Return an extension of the server that lets people review the labels of a file.

    Parameters
    ----------
    database : path
        The SQLite file of the reviews; made where there is none.
    data : path
        The table of texts with labels.
    model_name : str, optional
        Which of the server's models; the first by default.
    columns : Columns, optional
        Which columns hold what; by default those that the model was fitted with.
    model_path : path, optional
        The file of the model, next to which a retrained one may be saved.
    folds, seed : int
        Of the audit.
    """

    def extend(app: Any, models: Any, settings: Any) -> None:
        from labelgap.serve.reviews.desk import open_desk
        from labelgap.serve.reviews.material import Material
        from labelgap.serve.reviews.routes import make_router

        name = next(iter(models)) if model_name is None else model_name
        material = Material(data, models[name], columns or Columns())
        desk = open_desk(database, material, model_path=model_path, folds=folds, seed=seed)
        app.include_router(make_router(desk, name))
        app.router.lifespan_context = _closing(desk, app.router.lifespan_context)
        app.state.review_desk = desk

    return extend


def _closing(desk: Any, around: Callable) -> Callable:
    """Return the lifespan of an application that also closes the desk at its end."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with around(app) as state:
            yield state
        desk.close()

    return lifespan


def add_page(app: Any, models: Any = None, settings: Any = None) -> None:
    """Serve the page itself at / and its parts under /page.

    They may be read without a token; the page asks for it.
    """
    from fastapi.responses import FileResponse
    from fastapi.staticfiles import StaticFiles

    class Parts(StaticFiles):
        """Files that a browser asks for again: those of two versions do not go together."""

        async def get_response(self, path: str, scope: Any) -> Any:
            found = await super().get_response(path, scope)
            found.headers.update(FRESH)
            return found

    app.state.open_paths |= {"/", "/page/"}
    app.mount("/page", Parts(directory=PAGE), name="page")

    @app.get("/", include_in_schema=False)
    def index() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=FRESH)
