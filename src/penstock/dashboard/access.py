"""Who may look: names of hosts against rebinding, a token for anything but loopback, and headers that keep the page to itself."""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard", "is_allowed_host", "is_loopback", "split_host"]

COOKIE = "penstock"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


def split_host(header: str) -> str | None:
    """Return the name in a Host header without its port; ``None`` if there is none.

    >>> split_host("[::1]:8080"), split_host("Localhost:80"), split_host("a b")
    ('::1', 'localhost', None)
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?", header)
    return None if match is None else (match.group(1) or match.group(2)).lower().rstrip(".")


def is_loopback(host: str) -> bool:
    """Whether an address or a name leads to this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_allowed_host(header: str, *, is_local: bool, names: Sequence[str] = ()) -> bool:
    """Return whether a request with this Host header may be answered.

    A page of another site can point its own name at this server (DNS rebinding), and the browser then takes both for one site.
    It can't do that to an address or to a name that it does not own.

    >>> [is_allowed_host(host, is_local=True) for host in ("localhost:8642", "127.0.0.1", "evil.example")]
    [True, True, False]
    >>> is_allowed_host("10.0.0.5:8642", is_local=False), is_allowed_host("spark", is_local=False, names=["spark"])
    (True, True)
    """
    host = split_host(header)
    if host is None:
        return False
    if is_loopback(host) or host in {name.lower() for name in names}:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return not is_local


class Guard:
    """Checks every request before the application sees it, and adds headers to every answer.

    Parameters
    ----------
    app
        The application.
    token
        What a request must know; ``None`` asks for nothing, which is right on loopback only.
    is_local
        Whether the server listens on loopback only.
    names
        More names under which it may be reached.

    """

    def __init__(self, app: ASGIApp, *, token: str | None, is_local: bool, names: Sequence[str] = ()) -> None:
        self._app, self._token, self._is_local, self._names = app, token, is_local, tuple(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message.get("headers", [])}
                more = [(name, value) for name, value in _HEADERS if name not in known]
                message = {**message, "headers": [*message.get("headers", []), *more]}
            await send(message)

        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if scope["method"] not in ("GET", "HEAD"):
            await _refuse(send_guarded, 405, "only reading is possible here\n", (b"allow", b"GET, HEAD"))
        elif not is_allowed_host(headers.get(b"host", ""), is_local=self._is_local, names=self._names):
            await _refuse(
                send_guarded, 421, "this host name is not served here: use an address, or start with --allow-host NAME\n"
            )
        elif self._token is None or self._knows_token(headers):
            await self._app(scope, receive, send_guarded)
        elif self._matches(parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]):
            await self._hand_cookie(scope, send_guarded)
        else:
            await _refuse(
                send_guarded,
                401,
                "a token is needed: open the address that the dashboard printed\n",
                (b"www-authenticate", b"Bearer"),
            )

    def _matches(self, text: str) -> bool:
        return self._token is not None and secrets.compare_digest(text.encode(), self._token.encode())

    def _knows_token(self, headers: dict[bytes, str]) -> bool:
        kind, _, text = headers.get(b"authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._matches(text.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get(b"cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and self._matches(cookie.value)

    async def _hand_cookie(self, scope: Scope, send: Send) -> None:
        """Put the token into a cookie and out of the address, where others could read it."""
        cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
        location = scope.get("root_path", "") + "/"
        await _refuse(send, 303, "", (b"location", location.encode()), (b"set-cookie", cookie.encode()))


async def _refuse(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    more = [(b"content-type", b"text/plain; charset=utf-8"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": more})
    await send({"type": "http.response.body", "body": text.encode()})
