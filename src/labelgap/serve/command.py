"""The server as a command: one process or several, until it is told to stop."""

from __future__ import annotations

import gc
import inspect
import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from labelgap.runtime import available_cores, optional
from labelgap.serve import Extension, Settings, create_app
from labelgap.serve.settings import is_loopback

ENVIRONMENT = "LABELGAP_SERVE"
BACKLOG = 2048
MOST_CONNECTIONS = 1000
WORKER_TIMEOUT = 60  # seconds without a sign after which a worker is replaced; it imports a lot first


@dataclass(frozen=True)
class Plan:
    """What to serve; it travels to worker processes as JSON."""

    models: list[str]
    settings: Settings = field(default_factory=Settings)
    port: int = 8000
    workers: int = 1
    reviews: str | None = None
    data: str | None = None

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return what :meth:`to_json` wrote.

        >>> Plan.from_json(Plan(["a"], Settings(hosts=("b",))).to_json()).settings.hosts
        ('b',)
        """
        values = json.loads(text)
        settings = Settings(**{**values["settings"], "hosts": tuple(values["settings"]["hosts"])})
        return cls(**{**values, "settings": settings})


def serve(plan: Plan, *, insecure: bool, announce: Callable[[dict[str, Any]], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; requests that run are finished first."""
    uvicorn = optional("uvicorn", "serve")
    _check(plan, insecure)
    app: Any = "labelgap.serve.command:app_of_environment"
    if plan.workers == 1:
        app = _app(plan, check=True)
    else:
        plan = _for_workers(plan)
        os.environ[ENVIRONMENT] = plan.to_json()
    listening = _listen(plan.settings.host, plan.port)
    announce({"url": _url(listening), "models": [_name(one) for one in plan.models], "workers": plan.workers})
    config = uvicorn.Config(
        app,
        factory=plan.workers > 1,
        workers=plan.workers,
        http="labelgap.serve.protocol:Impatient",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(plan.settings.timeout) + 1,
        **_known(uvicorn.Config, timeout_worker_healthcheck=WORKER_TIMEOUT),
    )
    _run(uvicorn, config, listening)


def _check(plan: Plan, insecure: bool) -> None:
    host, token = plan.settings.host, plan.settings.token
    if not (is_loopback(host) or token or insecure):
        raise ValueError(f"--host {host} lets other machines in; pass --token, or --insecure if everyone may ask.")
    if plan.reviews is not None and plan.data is None:
        raise ValueError("--reviews keeps reviews of a table; say which one: --data FILE.")
    if plan.workers > 1 and plan.data is not None:
        raise ValueError("Reviews are kept by one process; leave out --workers where there is --data.")


def _for_workers(plan: Plan) -> Plan:
    """Return the plan of several processes with a share of the cores each, if the models are whole."""
    from labelgap.serve.models import open_models

    open_models(plan.models)
    if plan.settings.n_threads is not None:
        return plan
    share = max(1, available_cores() // plan.workers)
    return replace(plan, settings=replace(plan.settings, n_threads=share))


def app_of_environment() -> Any:
    """Return the application that the environment describes, in the process that will answer."""
    return _app(Plan.from_json(os.environ[ENVIRONMENT]), check=False)


def _app(plan: Plan, *, check: bool) -> Any:
    optional("fastapi", "serve")
    from labelgap.serve.models import open_models

    models = open_models(plan.models, check=check)
    app = create_app(models, settings=plan.settings, extensions=_extensions(plan))
    gc.collect()
    gc.freeze()  # what is there now stays; to go through it again and again would hold up requests
    return app


def _name(model: str) -> str:
    from labelgap.serve.models import named

    return named(model)[0]


def _extensions(plan: Plan) -> list[Extension]:
    """Return the page, and what it needs for reviews of a file, which are of the first model."""
    from labelgap.serve.models import named
    from labelgap.serve.reviews import add_page, make_extension

    if plan.data is None:
        return [add_page]
    name, path = named(plan.models[0])
    data = Path(plan.data)
    database = Path(plan.reviews) if plan.reviews else data.with_suffix(".reviews.sqlite")

    def join(app: Any, models: Any, settings: Settings) -> None:
        models.find(name).training_labels = app.state.review_desk.material.labels

    return [make_extension(database, data, name, model_path=path), add_page, join]


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that takes connections, which wait until the application is there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only of a socket that is explicitly TCP does asyncio turn off the delay of small packets, which costs 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        raise OSError(f"Cannot listen at {host} port {port} ({error}); pass another --host or --port.") from error
    listening.set_inheritable(True)
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _run(uvicorn: Any, config: Any, listening: socket.socket) -> None:
    # Uvicorn raises the signal again once all is finished: that is a success, not a death.
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        server = uvicorn.Server(config)
        if config.workers == 1:
            server.run(sockets=[listening])
        else:
            multiprocess = optional("uvicorn.supervisors", "serve").Multiprocess
            multiprocess(config, sockets=[listening], **_known(multiprocess, target=server.run)).run()
    except KeyboardInterrupt:  # so is this
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        listening.close()


def _known(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """Return those options that a function has: versions of uvicorn differ.

    >>> _known(lambda a: None, a=1, b=2)
    {'a': 1}
    """
    there = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in there}


def _leave(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
