"""``penstock dashboard``: one page in a browser that shows what journals say, live."""

from __future__ import annotations

import os
import secrets
import socket
import webbrowser

import typer

from penstock.errors import PenstockError

__all__ = ["dashboard"]

_TOKEN = "PENSTOCK_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable
_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what a user may ask for


def dashboard(
    directories: list[str] = typer.Argument(
        ..., metavar="DIR...", help="Checkpoints, journals, directories that hold some, or the --dir of a network; also URIs."
    ),
    host: str = typer.Option("127.0.0.1", "--host", help="The address to listen on. Anything but loopback needs a token."),
    port: int = typer.Option(8642, "--port", help="The port; 0 takes a free one."),
    allow_host: list[str] = typer.Option([], "--allow-host", help="One more host name under which it may be reached."),
    open_page: bool = typer.Option(False, "--open/--no-open", help="Open the page in a browser."),
) -> None:
    """Show journals in a browser: delay, arrivals, keep, costs, decisions with reasons, networks. It only reads.

    On loopback no token is needed. Elsewhere the token is that of the variable PENSTOCK_DASHBOARD_TOKEN, or a new one that is
    printed with the address.
    """
    if not 0 <= port <= 65535:
        raise PenstockError(f"--port must lie in [0, 65535], got {port}")
    try:
        from penstock.dashboard.access import is_loopback  # noqa: PLC0415 - commands load what they need
        from penstock.dashboard.server import bind, serve  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise PenstockError(f"the dashboard needs {error.name}: pip install 'penstock[dashboard]'") from error
    from penstock.observe import Observatory  # noqa: PLC0415

    observatory = Observatory(directories, may_wait=True)
    listener = bind(host, port)
    bound, number = listener.getsockname()[:2]
    token = None if is_loopback(bound) else os.environ.get(_TOKEN) or secrets.token_urlsafe(24)
    machine = socket.gethostname()
    shown = machine if bound in _ANYWHERE else f"[{bound}]" if ":" in bound else bound
    address = f"http://{shown}:{number}/" + ("" if token is None else f"?token={token}")

    def announce() -> None:
        typer.echo(f"dashboard: {address}  (Ctrl-C stops it)")
        if not observatory.queries:
            typer.echo("there is no journal yet: the page shows queries as soon as they write one")
        if open_page:
            webbrowser.open(address)

    serve(observatory, listener, token=token, names=[*allow_host, machine], on_ready=announce)
