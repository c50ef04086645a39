"""The page: for a server, or with everything inside for a report. Names from data never become HTML."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["CONTENT_TYPES", "SCRIPTS", "STYLES", "read_static", "render_live_page", "render_report_page"]

STYLES = ("uplot.css", "style.css")
SCRIPTS = ("uplot.js", "text.js", "charts.js", "network.js", "story.js", "app.js")
CONTENT_TYPES = {".css": "text/css", ".js": "text/javascript"}

_KEYS = (
    ("j or ]", "next query"),
    ("k or [", "previous query"),
    ("/", "filter queries, where there are many"),
    ("1 to 7", "time shown"),
    ("0", "leave the zoom"),
    ("t", "light or dark"),
    ("← →", "move along a chart that has the focus"),
    ("?", "this help"),
)
_BODY = """<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="top">
<span class="brand"><svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round"
aria-hidden="true"><path d="M3 5h18M12 5v6M5 15c2-2 4-2 7 0s5 2 7 0M5 20c2-2 4-2 7 0s5 2 7 0"/></svg>Penstock</span>
<span id="connection" class="pill" role="status"></span>
<span class="space"></span>
<button id="keys" class="icon" type="button" aria-label="keys">?</button>
<button id="theme" class="icon" type="button" aria-label="dark colours">◐</button>
</header>
<div class="frame">
<nav class="side" aria-label="queries">
<input id="filter" type="search" placeholder="Filter queries" aria-label="filter queries" hidden>
<div id="side"></div></nav>
<div>
<div class="picker"><select id="pick" aria-label="query"></select></div>
<main id="content" tabindex="-1"></main>
</div>
</div>
<dialog id="help"><h2>Keys</h2><table><tbody>{keys}</tbody></table>
<form method="dialog"><button class="icon">Close</button></form></dialog>
<div id="announce" class="announce" aria-live="polite"></div>
<noscript>This page needs JavaScript.</noscript>
"""


@cache
def read_static(name: str) -> str:
    """Return one of the page's own files."""
    return (files("penstock.dashboard") / "static" / name).read_text(encoding="utf-8")


def _render_body() -> str:
    keys = "".join(f"<tr><td><kbd>{key}</kbd></td><td>{what}</td></tr>" for key, what in _KEYS)
    return _BODY.replace("{keys}", keys)


def render_live_page() -> str:
    """Return the page that a server serves, with its files beside it."""
    styles = "".join(f'<link rel="stylesheet" href="static/{name}">\n' for name in STYLES)
    scripts = "".join(f'<script src="static/{name}"></script>\n' for name in SCRIPTS)
    return _wrap("Penstock", f"{styles}", f"{_render_body()}{scripts}")


def render_report_page(data: Mapping[str, Any], title: str = "Penstock report") -> str:
    """Return one file with the page, its scripts and its data; it asks no other host and no server for anything.

    Parameters
    ----------
    data
        ``overview``, ``details`` and ``curves`` by query, and optionally a ``story``; plain JSON values.
    title
        The title of the page.
    """
    style = "\n".join(read_static(name) for name in STYLES)
    script = "\n".join(read_static(name) for name in SCRIPTS)
    sources = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    embedded = f'<script id="data" type="application/json">{_to_json(data)}</script>\n<script>{script}</script>\n'
    return _wrap(title, head, f"{_render_body()}{embedded}")


def _wrap(title: str, head: str, body: str) -> str:
    safe = title.replace("&", "&amp;").replace("<", "&lt;")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{safe}</title>
<link rel="icon" href="data:,">
{head}</head>
{body}</body>
</html>
"""


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _to_json(data: Mapping[str, Any]) -> str:
    """Return JSON that can't end the element that it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
