"""Who may ask: the checks that every request passes, as functions of its headers.

A page of another site could name this server in a link or a script, or resolve its own name to this
address (DNS rebinding). So the Host must be one of the server's names, and an Origin, which browsers
send with requests of scripts, must be the server's own. Commands need a token besides, which is only
in the address that the starter of the query has: after a #, which browsers never send.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Names of the loopback interface.
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
TOKEN_BYTES = 32

#: With every answer. The page has no inline script or style, and loads nothing from elsewhere.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Guard:
    """The names of a server and its token."""

    #: Lower case, with ports: what a Host header may say.
    hosts: frozenset[str]
    #: None: nobody may give commands.
    token: str | None = None

    @classmethod
    def of(
        cls, host: str, port: int, names: Iterable[str] = (), *, controls: bool = False
    ) -> Guard:
        """Returns the guard of a server that listens on an address, under these names too."""
        own = LOOPBACK if is_loopback(host) else (bracketed(host),)
        known = {name.lower() for name in (*own, *names)}
        hosts = {f"{name}:{port}" for name in known} | ({*known} if port == 80 else set())
        # A name may come with the port of a proxy.
        hosts |= {name.lower() for name in names}
        return cls(frozenset(hosts), secrets.token_urlsafe(TOKEN_BYTES) if controls else None)

    def refuses(self, headers: Mapping[str, str]) -> str | None:
        """Returns why a request is refused; None if it is not."""
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            return "the Host of the request is not a name of this server"
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, host):
            return "the request comes from a page of another site"
        # Anybody may link to the page: what a browser opens as a page of its own, the linking page
        # cannot read.
        opened = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        site = headers.get("sec-fetch-site", "same-origin")
        if site not in ("same-origin", "none") and opened != ("navigate", "document"):
            return "the request comes from a page of another site"
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        return origin.lower() in (f"http://{host}", f"https://{host}")

    def permits(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has the token; takes equally long for all wrong ones."""
        given = headers.get("authorization", "")
        wanted = "" if self.token is None else f"Bearer {self.token}"
        same = secrets.compare_digest(given.encode(), wanted.encode())
        return same and self.token is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
        (True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """An address as URLs have it.

    Example:
        >>> bracketed("::1")
        '[::1]'
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
