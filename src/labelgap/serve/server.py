"""The server process of ``labelgap serve``: one process or several workers, until a signal stops them."""

from __future__ import annotations

import gc
import inspect
import json
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from labelgap.runtime import available_cores, import_optional, prepare_threads
from labelgap.serve import Extension, Settings, create_app
from labelgap.serve.settings import is_loopback

OPTIONS_VARIABLE = "LABELGAP_SERVE"  # environment variable with the options, for worker processes
BACKLOG = 2048
MAX_CONNECTIONS = 1000
CLIENT_FAULTS = ("Invalid HTTP request received.", "Exceeded concurrency limit.")  # anybody can fill a log with these
WORKER_TIMEOUT_SECONDS = 60  # a worker that is silent for longer is replaced; its imports take a while


@dataclass(frozen=True)
class ServerOptions:
    """Options of the server; workers receive them as JSON.

    Attributes
    ----------
    models : list of str
        Models as PATH or NAME=PATH.
    settings : Settings
        Limits and access rules.
    port, workers : int
        The port, 0 for a free one, and the number of processes.
    reviews, data : str, optional
        The SQLite file of reviews, and the table of texts to review.
    device : str
        The device of predictions.
    """

    models: list[str]
    settings: Settings = field(default_factory=Settings)
    port: int = 8000
    workers: int = 1
    reviews: str | None = None
    data: str | None = None
    device: str = "auto"

    def to_json(self) -> str:
        """Return the options as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ServerOptions:
        """Read the options that :meth:`to_json` wrote.

        >>> ServerOptions.from_json(ServerOptions(["a"], Settings(hosts=("b",))).to_json()).settings.hosts
        ('b',)
        """
        values = json.loads(text)
        settings = dict(values["settings"])
        settings["hosts"] = tuple(settings["hosts"])
        settings["tokens"] = tuple(map(tuple, settings["tokens"]))
        return cls(**{**values, "settings": Settings(**settings)})


def run_server(options: ServerOptions, *, insecure: bool, announce: Callable[[dict[str, Any]], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; running requests are finished first."""
    uvicorn = import_optional("uvicorn", "serve")
    import_optional("fastapi", "serve")
    from labelgap.serve.protocol import make_protocol
    from labelgap.serve.served_models import split_model_source

    _check_options(options, insecure)
    prepare_threads()
    app: Any = "labelgap.serve.server:make_worker_app"
    if options.workers == 1:
        app = _make_app(options, check=True)
    else:
        options = _share_cores(options)
    listening = _listen(options.settings.host, options.port)
    names = [split_model_source(source)[0] for source in options.models]
    started: dict[str, Any] = {"url": _url(listening), "models": names, "workers": options.workers}
    if options.data is not None:
        started["reviews"] = app.state.review_session.describe_file()
    announce(started)
    config = uvicorn.Config(
        app,
        factory=options.workers > 1,
        workers=options.workers,
        http=make_protocol(),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(options.settings.timeout) + 1,
        **_supported(uvicorn.Config, timeout_worker_healthcheck=WORKER_TIMEOUT_SECONDS),
    )
    with _worker_environment(options):
        _run(uvicorn, config, listening)


def _check_options(options: ServerOptions, insecure: bool) -> None:
    host = options.settings.host
    if not (is_loopback(host) or options.settings.secrets or insecure):
        raise ValueError(
            f"--host {host} admits other machines; pass --token, or --insecure to admit everybody without one."
        )
    if options.reviews is not None and options.data is None:
        raise ValueError("--reviews needs the table that is reviewed; pass --data FILE.")
    if options.reviews is not None and (options.reviews.startswith((":", "file:")) or not options.reviews):
        raise ValueError(f"--reviews {options.reviews} is not a file; reviews in memory would be lost at the end.")
    if options.workers > 1 and options.data is not None:
        raise ValueError("Only a single process can keep reviews; leave out --workers with --data.")


def _share_cores(options: ServerOptions) -> ServerOptions:
    """Check the models, and divide the cores among the workers.

    Audit jobs are turned off: the next request about a job may reach another worker.
    """
    from labelgap.serve.served_models import open_models

    open_models(options.models, device=options.device)
    n_threads = options.settings.n_threads or max(1, available_cores() // options.workers)
    return replace(options, settings=replace(options.settings, n_threads=n_threads, max_audit_jobs=0))


@contextmanager
def _worker_environment(options: ServerOptions) -> Iterator[None]:
    """Set the environment variables that worker processes read when they start."""
    if options.workers == 1:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="labelgap-metrics-") as folder:
        os.environ[OPTIONS_VARIABLE] = options.to_json()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # each worker's /metrics adds up the files in it
        try:
            yield
        finally:
            del os.environ[OPTIONS_VARIABLE], os.environ["PROMETHEUS_MULTIPROC_DIR"]


def make_worker_app() -> Any:
    """Return the application of a worker process, from the options in the environment."""
    prepare_threads()
    return _make_app(ServerOptions.from_json(os.environ[OPTIONS_VARIABLE]), check=False)


def _make_app(options: ServerOptions, *, check: bool) -> Any:
    from labelgap.serve.served_models import open_models

    logging.getLogger("uvicorn.error").addFilter(_is_no_client_fault)
    models = open_models(options.models, check=check, device=options.device)
    app = create_app(models, settings=options.settings, extensions=_extensions(options))
    gc.collect()
    gc.freeze()  # these objects stay; traversing them in every collection would delay requests
    return app


def _is_no_client_fault(record: logging.LogRecord) -> bool:
    return record.getMessage() not in CLIENT_FAULTS


def _extensions(options: ServerOptions) -> list[Extension]:
    """Return the web page and, with --data, the reviews of that table by the first model."""
    from labelgap.serve.reviews import add_page, make_extension
    from labelgap.serve.served_models import split_model_source

    if options.data is None:
        return [add_page]
    name, path = split_model_source(options.models[0])
    data = Path(options.data)
    database = Path(options.reviews) if options.reviews else data.with_suffix(".reviews.sqlite")

    def set_training_labels(app: Any, models: Any, settings: Settings) -> None:
        models.find(name).training_labels = app.state.review_session.data.labels

    return [make_extension(database, data, name, model_path=path), add_page, set_training_labels]


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; connections wait until the application is ready."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is explicitly TCP; without it small packets are delayed by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        raise OSError(f"Cannot listen on {host} port {port} ({error}); pass another --host or --port.") from error
    listening.set_inheritable(True)
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _run(uvicorn: Any, config: Any, listening: socket.socket) -> None:
    # Uvicorn raises SIGTERM again after a graceful shutdown; exit with code 0 then.
    before = signal.signal(signal.SIGTERM, _exit_normally)
    try:
        server = uvicorn.Server(config)
        if config.workers == 1:
            server.run(sockets=[listening])
        else:
            multiprocess = import_optional("uvicorn.supervisors", "serve").Multiprocess
            multiprocess(config, sockets=[listening], **_supported(multiprocess, target=server.run)).run()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        listening.close()


def _supported(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """Return the options that a function has as parameters; versions of uvicorn differ.

    >>> _supported(lambda a: None, a=1, b=2)
    {'a': 1}
    """
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in parameters}


def _exit_normally(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
