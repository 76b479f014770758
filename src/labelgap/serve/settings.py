"""What a server allows, in one place."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

_STRANGE = re.compile(r"[^ -~]|^ | \Z")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Settings:
    """Limits and doors of a server.

    Attributes
    ----------
    host : str
        The address that is listened at; loopback by default.
    token : str or None
        What requests must carry as ``Authorization: Bearer …``.
    hosts : tuple of str
        Further names by which requests may call the server, beside those of loopback.
    max_body, max_texts, max_length, max_top, max_cells, max_arguments : int
        The most bytes of a request, rows in it, characters of a text, labels of a row, scores in an answer, and
        features of a row to explain.
    timeout, body_timeout : float
        Seconds within which an answer must be there, and within which a request must have come in.
    batch_ms, batch_size, queue : float, int, int
        How long the first request waits for others, and the most rows that are predicted at once or wait for it.
    n_threads : int or None
        Threads of a prediction; all cores by default.
    """

    host: str = "127.0.0.1"
    token: str | None = None
    hosts: tuple[str, ...] = ()
    max_body: int = 8 << 20
    max_texts: int = 1000
    max_length: int = 100_000
    max_top: int = 1000
    max_cells: int = 200_000
    max_arguments: int = 1000
    timeout: float = 30.0
    body_timeout: float = 10.0
    batch_ms: float = 0.0
    batch_size: int = 256
    queue: int = 8192
    n_threads: int | None = None

    def __post_init__(self) -> None:
        if self.token == "":
            raise ValueError("token is empty, which lets everybody in; pass a secret, or None for no token.")
        if self.token is not None and (strange := _STRANGE.search(self.token)):
            raise ValueError(
                f"token has {strange.group()!r} where no header can carry it; make --token (LABELGAP_TOKEN) of "
                "printable ASCII characters, with no blank at either end."
            )

    @property
    def allowed_hosts(self) -> frozenset[str] | None:
        """The names that a Host header may have; None is any, where others than this machine may come in."""
        if not is_loopback(self.host) and not self.hosts:
            return None
        own = f"[{self.host}]" if ":" in self.host and not self.host.startswith("[") else self.host
        return frozenset(name.lower() for name in (*LOOPBACK_NAMES, own, *self.hosts))


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
