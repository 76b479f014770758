"""Review of labels by people: a web page, its routes, and a store of verdicts.

Path of a verdict, and where it can be lost
-------------------------------------------

1. ``page/page.js``, ``onKey``: a key reaches the shown view. Keys are ignored in a field, in a dialog, with Ctrl, Alt
   or Meta, and when they repeat.
2. ``page/review.js``, ``decide``: the key or a button makes an entry with a random entry id and the ``data_id`` of
   the document, and hands it to the outbox. Before the document of the card is shown, this does nothing.
3. ``page/outbox.js``, ``deliver``: entries are sent one after the other, and each is repeated until the server stores
   it or refuses it. The top of the page shows "Saved", "Saving …", "not saved, retrying" or "not stored". Waiting and
   refused entries are in the session storage, which a reload and a crash of the tab leave alone; closing the tab
   deletes them, after a question.
4. ``serve/middleware.py``, ``Guard``: 401 makes the page ask for the token, 408 is repeated, 413, 415 and 421 are
   refusals, and so is 400. The outbox repeats any other status of the server, and a 4xx that is not this service's:
   404 with the code ``not_found`` means that the server was started without ``--data``.
5. ``routes.py``, ``add_verdict``: ``POST /review/verdicts`` refuses a verdict on other data (409 ``other_data``), an
   entry id of another entry (409 ``conflict``), a cell without a suggestion (404 ``no_suggestion``) and a wrong body
   (422). The server logs each refusal. The page lists the verdict with the reason in every view until a person sends
   it again or discards it.
6. ``store.py``, ``Store.add``: one transaction appends the verdict to the log in the SQLite file and waits for the
   disk. An entry whose id is in the log already is not added again. If the file or its ``-wal`` was deleted or moved,
   or another program has locked it, the answer is 503, and 507 if the disk is full; the page repeats the entry. If
   another person decided otherwise, both entries stay, and the cell is in conflict until somebody settles it.
7. The answer has the labels that the document has now. The outbox drops the entry.
8. ``session.py``, ``learn_in_background``: after 20 verdicts the probabilities of the undecided suggestions and the
   share of missing labels become those that all current verdicts teach (:func:`labelgap.gaps.learn`). Each answer
   names the newest verdict that the queue has learned from; when it changes, the page follows the new order after
   the current card.

A stored verdict ceases to be current if a later one on the same cell replaces it, or if an undo revokes it. An undo
of the page names its verdict; if that one is not stored, nothing is undone. Every entry stays in the log, which
``GET /review/export/log`` returns.

The file is chosen by ``--reviews``, by default NAME.reviews.sqlite next to ``--data``; a new file starts without
verdicts. The command prints its path and its number of verdicts, and ``GET /review/state`` names it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from labelgap.inputs import TableColumns

__all__ = ["add_page", "make_extension"]

PAGE = Path(__file__).parent / "page"
NO_CACHE = {"Cache-Control": "no-cache"}


def make_extension(
    database: Path,
    data: Path,
    model_name: str | None = None,
    *,
    columns: TableColumns | None = None,
    model_path: Path | None = None,
    folds: int = 5,
    seed: int = 0,
) -> Callable[[Any, Any, Any], None]:
    """Return an extension of the service for reviewing the labels of a table.

    Parameters
    ----------
    database : path
        The SQLite file of the reviews; created if it does not exist.
    data : path
        The table of texts with labels.
    model_name : str, optional
        The name of the served model; the first model by default.
    columns : TableColumns, optional
        The columns of the table; by default those that the model was fitted on.
    model_path : path, optional
        The file of the model; a retrained model is saved next to it.
    folds, seed : int
        Number of models and random seed of the audit.
    """

    def extend(app: Any, models: Any, settings: Any) -> None:
        from labelgap.serve.reviews.review_data import ReviewData
        from labelgap.serve.reviews.routes import make_router
        from labelgap.serve.reviews.session import open_session
        from labelgap.serve.reviews.store import StoreBusy
        from labelgap.serve.schemas import server_busy

        async def answer_busy(request: Any, error: Any) -> Any:
            return server_busy().response()

        name = next(iter(models)) if model_name is None else model_name
        review_data = ReviewData(data, models[name], columns or TableColumns())
        session = open_session(database, review_data, model_path=model_path, folds=folds, seed=seed)
        app.include_router(make_router(session, name))
        app.state.logged_paths |= {"/review/verdicts", "/review/undo"}
        app.add_exception_handler(StoreBusy, answer_busy)
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[Any]:
            async with inner(app) as state:
                # Not earlier: a library that the main thread loads while an audit begins can stop both.
                session.start_first_audit()
                yield state
            session.close()

        app.router.lifespan_context = lifespan
        app.state.review_session = session

    return extend


def add_page(app: Any, models: Any = None, settings: Any = None) -> None:
    """Serve the web page at / and its files under /page, without a token; the page asks for it."""
    from fastapi.responses import FileResponse
    from fastapi.staticfiles import StaticFiles

    class PageFiles(StaticFiles):
        """Files that browsers revalidate, so that the files of two versions are never mixed."""

        async def get_response(self, path: str, scope: Any) -> Any:
            response = await super().get_response(path, scope)
            response.headers.update(NO_CACHE)
            return response

    app.state.open_paths |= {"/", "/page/"}
    app.mount("/page", PageFiles(directory=PAGE), name="page")

    @app.get("/", include_in_schema=False)
    def show_page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=NO_CACHE)
