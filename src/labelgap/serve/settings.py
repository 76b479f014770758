"""Limits and access rules of the service."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

_NOT_IN_HEADER = re.compile(r"[^ -~]|^ | \Z")
NAME = re.compile(r"\w(?:[\w .-]{0,98}\w)?")  # of a person
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Settings:
    """Limits and access rules of a server.

    Attributes
    ----------
    host : str
        The address to listen on; loopback by default.
    token : str or None
        The secret that requests must send as ``Authorization: Bearer …``; None requires no token.
    hosts : tuple of str
        Host names accepted in addition to those of loopback and ``host``.
    tokens : tuple of (name, secret)
        Further secrets, each with the name of the person who has it; reviews are stored under that name.
    max_body, max_texts, max_length, max_top, max_cells, max_work, max_arguments : int
        Maximum number of bytes in a request, rows in a request, characters in a text, labels per row in an answer,
        scores in an answer, scores that are computed for it, and features in a row to explain.
    max_memory : int
        Maximum number of bytes of the bodies, of their values and of the answers of all requests together.
    max_audit_jobs : int
        Maximum number of audit jobs that run at once; 0 turns them off.
    timeout, body_timeout : float
        Seconds allowed for computing an answer, and for receiving a request body.
    batch_ms : float
        Milliseconds that the first request waits for others to join its batch.
    batch_size, queue : int
        Maximum number of rows in a batch, and of rows that wait for the next one.
    n_threads : int or None
        Threads for a prediction; by default all cores, less one for up to 64 rows.
    """

    host: str = "127.0.0.1"
    token: str | None = None
    hosts: tuple[str, ...] = ()
    tokens: tuple[tuple[str, str], ...] = ()
    max_body: int = 8 << 20
    max_texts: int = 1000
    max_length: int = 100_000
    max_top: int = 1000
    max_cells: int = 200_000
    max_work: int = 50_000_000
    max_memory: int = 512 << 20
    max_arguments: int = 1000
    max_audit_jobs: int = 2
    timeout: float = 30.0
    body_timeout: float = 10.0
    batch_ms: float = 0.0
    batch_size: int = 256
    queue: int = 8192
    n_threads: int | None = None

    def __post_init__(self) -> None:
        for secret in self.secrets:
            if secret == "":
                raise ValueError("token is empty, which would let everybody in; pass a secret, or None for no token.")
            if wrong := _NOT_IN_HEADER.search(secret):
                raise ValueError(
                    f"token contains {wrong.group()!r}, which an HTTP header cannot carry; use printable ASCII "
                    "characters for --token (LABELGAP_TOKEN), without a space at either end."
                )
        for name, _ in self.tokens:
            if not NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not a name for a token; use 1 to 100 letters, digits, blanks, . _ and -."
                )
        if len(set(self.secrets)) < len(list(self.secrets)):
            raise ValueError(
                "Two tokens are equal, so that they name nobody; pass a secret of its own for each name."
            )

    @property
    def secrets(self) -> list[str]:
        """All tokens; a server without any admits everybody who reaches it."""
        return [*([] if self.token is None else [self.token]), *(secret for _, secret in self.tokens)]

    @property
    def names(self) -> dict[bytes, str]:
        """The name behind each token, which is empty for the unnamed one."""
        unnamed = [] if self.token is None else [(self.token.encode(), "")]
        return dict([*unnamed, *((secret.encode(), name) for name, secret in self.tokens)])

    @property
    def allowed_hosts(self) -> frozenset[str] | None:
        """Accepted Host names; None accepts any, for a server that other machines reach under unknown names."""
        if not is_loopback(self.host) and not self.hosts:
            return None
        own = f"[{self.host}]" if ":" in self.host and not self.host.startswith("[") else self.host
        return frozenset(name.lower() for name in (*LOOPBACK_NAMES, own, *self.hosts))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
