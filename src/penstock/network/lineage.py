"""Where a column of an operator comes from, read from what the operators before it do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.duration import is_zero_duration, parse_duration
from penstock.errors import PenstockError
from penstock.network.model import Network, Operator

__all__ = ["Untraceable", "Window", "equal_columns", "find_window", "grouped_columns", "is_stateful", "trace_columns"]

_NAME = r"(?:[A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`)"
_PLAIN = re.compile(rf"\s*({_NAME})\s*")
_ALIAS = re.compile(rf"(.+?)\s+as\s+({_NAME})\s*", re.IGNORECASE | re.DOTALL)
_TEXT = r"(?:'([^']*)'|\"([^\"]*)\")"
_WINDOW = re.compile(
    rf"\s*window\s*\(\s*({_NAME})\s*,\s*{_TEXT}\s*(?:,\s*{_TEXT}\s*)?(?:,\s*{_TEXT}\s*)?\)\s*(?:as\s+{_NAME}\s*)?", re.IGNORECASE
)
_EQUAL = re.compile(rf"\s*(left|right)\s*\.\s*({_NAME})\s*(?:=|==)\s*(left|right)\s*\.\s*({_NAME})\s*", re.IGNORECASE)


class Untraceable(Exception):  # noqa: N818 - it is a reason, not an error: what it means depends on who asked
    """Why a column can't be followed to a gate, in words that continue a sentence."""


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of event time as ``window(time, length, slide, offset)`` makes them, in microseconds."""

    time: str
    length: int
    slide: int
    offset: int = 0

    def holds(self, other: Window) -> bool:
        """Return whether each of the other windows lies in one of these; none of them may overlap.

        >>> Window("t", 10, 10).holds(Window("t", 5, 5)), Window("t", 10, 10).holds(Window("t", 5, 5, 1))
        (True, False)
        """
        return self.length % other.length == 0 and (self.offset - other.offset) % other.length == 0


def find_window(work: Mapping[str, Any]) -> Window:
    """Return the windows that an aggregate groups by; raise ``Untraceable`` if they can't be dropped whole.

    >>> find_window({"group": ("window(arrival, '10 seconds')", "key")})
    Window(time='arrival', length=10000000, slide=10000000, offset=0)
    """
    if "function" in work:
        raise Untraceable("it is a function, whose windows are not known")
    found = [match for text in _to_texts(work.get("group", ())) if (match := _WINDOW.fullmatch(text))]
    if not found:
        raise Untraceable("it does not group by window(column, 'length')")
    time, *texts = found[0].groups()
    length, slide, offset = (
        first if first is not None else second for first, second in zip(texts[::2], texts[1::2], strict=True)
    )
    try:
        micros = round(parse_duration(length, "its window") * 1e6)
        step = micros if slide is None else round(parse_duration(slide, "its slide") * 1e6)
        is_aligned = offset is None or is_zero_duration(offset)
        start = 0 if is_aligned else round(parse_duration(offset, "its offset") * 1e6)
    except PenstockError as error:
        raise Untraceable(str(error)) from error
    if step != micros:
        raise Untraceable("its windows overlap, so a row lies in several of them")
    return Window(_unquote(time), micros, step, start % step)


def grouped_columns(work: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the plain columns that an aggregate groups by; raise ``Untraceable`` if there are none.

    >>> grouped_columns({"group": ("session_window(arrival, '10 seconds')", "user")})
    ('user',)
    """
    names = [match[1] for text in _to_texts(work.get("group", ())) if (match := _PLAIN.fullmatch(text))]
    if "function" in work or not names:
        raise Untraceable("it groups by no plain column")
    return tuple(_unquote(name) for name in names)


def equal_columns(work: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the columns, left and right, that must be equal for two rows to join; raise ``Untraceable`` if there are none.

    >>> equal_columns({"on": "left.id = right.ad AND left.t BETWEEN right.t AND right.t + INTERVAL 1 HOUR"})
    (('id', 'ad'),)
    """
    if "function" in work:
        raise Untraceable("it is a function, whose keys are not known")
    pairs = []
    for part in _split_conjunction(str(work.get("on", ""))):
        match = _EQUAL.fullmatch(_strip_brackets(part))
        if match and match[1].lower() != match[3].lower():
            sides = {match[1].lower(): _unquote(match[2]), match[3].lower(): _unquote(match[4])}
            pairs.append((sides["left"], sides["right"]))
    if not pairs:
        raise Untraceable("its 'on' has no 'left.x = right.y' that must hold for every pair")
    return tuple(pairs)


def _split_conjunction(text: str) -> list[str]:
    """Split at each AND outside of brackets and quotes that does not belong to a BETWEEN; whole if there is an OR or a NOT."""
    parts, depth, start, open_betweens = [], 0, 0, 0
    for match in re.finditer(r"'[^']*'|\"[^\"]*\"|`[^`]*`|[()]|\b(?:and|or|not|case|between)\b", text, re.IGNORECASE):
        word = match[0].lower()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth:
            continue
        if word in ("or", "not", "case"):
            return [text]
        if word == "between":
            open_betweens += 1
        elif word == "and" and open_betweens:
            open_betweens -= 1
        elif word == "and":
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


def _strip_brackets(text: str) -> str:
    text = text.strip()
    while text.startswith("(") and text.endswith(")") and "(" not in text[1:-1]:
        text = text[1:-1].strip()
    return text


def trace_columns(
    operator: Operator, work: Mapping[str, Any], columns: tuple[str, ...], *, trusts_functions: bool = False
) -> tuple[str, ...]:
    """Return what columns of a stateless operator's output are called in its input; raise ``Untraceable`` if it computes them.

    A function may compute any column. One that is trusted leaves these columns, and their names, as they are.

    >>> trace_columns(Operator("m", "A", ("i",), 0.0), {"select": ("id as key", "t")}, ("key", "t"))
    ('id', 't')
    """
    if "function" in work and not trusts_functions:
        raise Untraceable(f"operator {operator.name!r} is a function, which may compute column {columns[0]!r}")
    if operator.kind != "map" or "select" not in work:
        return columns
    return tuple(_find_definition(operator.name, _to_texts(work["select"]), name) for name in columns)


def _find_definition(operator: str, texts: tuple[str, ...], column: str) -> str:
    for text in texts:
        alias = _ALIAS.fullmatch(text)
        name = alias[2] if alias else plain[1] if (plain := _PLAIN.fullmatch(text)) else None
        if name is None or _unquote(name).lower() != column.lower():
            continue
        source = _PLAIN.fullmatch(alias[1]) if alias else plain
        if source is None:
            raise Untraceable(f"operator {operator!r} computes column {column!r}")
        return _unquote(source[1])
    if any(text.strip() == "*" for text in texts):
        return column
    raise Untraceable(f"operator {operator!r} does not pass on column {column!r}")


def is_stateful(network: Network, name: str) -> bool:
    """Return whether a part of a network is an aggregate or a join."""
    operator = network.operators.get(name)
    return operator is not None and operator.kind in ("aggregate", "join")


def _to_texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(str(text) for text in value)


def _unquote(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
