"""Compose YAML text into nodes, without recursion: however deep brackets are nested, the stack does not overflow."""

from __future__ import annotations

from typing import Any

import yaml

from penstock.errors import PenstockError

__all__ = ["compose_yaml"]

# The base loader leaves values as text. We know the type of each field, and guessing types would double the parse time.
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_COLLECTIONS: Any = {yaml.MappingStartEvent: yaml.MappingNode, yaml.SequenceStartEvent: yaml.SequenceNode}
_DEEPEST = 50


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the root node of a YAML document, or ``None`` if it is empty.

    PyYAML's own ``compose`` calls itself for every level, and its C version ends the process when the stack overflows.

    Raises
    ------
    PenstockError
        If values are nested deeper than any network needs.
    yaml.YAMLError
        If the text is not YAML.

    Examples
    --------
    >>> compose_yaml("[" * 100_000)
    Traceback (most recent call last):
    penstock.errors.PenstockError: line 1: lists and mappings are nested more than 50 deep; a network needs no more than 5
    """
    root: yaml.Node | None = None
    stack: list[yaml.Node] = []
    anchors: dict[str, yaml.Node] = {}
    for event in yaml.parse(text, Loader=_LOADER):
        kind = type(event)  # faster than isinstance, and events have no subclasses
        if kind is yaml.ScalarEvent:
            node = yaml.ScalarNode("", event.value, event.start_mark, event.end_mark)
        elif kind in _COLLECTIONS:
            node = _COLLECTIONS[kind]("", [], event.start_mark, event.end_mark)
        elif kind is yaml.AliasEvent:
            node = _follow(event, anchors)
        else:
            if kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                _close(stack.pop())
            elif kind is yaml.DocumentStartEvent and root is not None:
                raise PenstockError(f"line {event.start_mark.line + 1}: a second document starts here: a network is one")
            continue
        if event.anchor is not None:
            anchors[event.anchor] = node
        if stack:
            stack[-1].value.append(node)
        else:
            root = node
        if kind in _COLLECTIONS:
            stack.append(node)
            if len(stack) > _DEEPEST:
                raise PenstockError(
                    f"line {event.start_mark.line + 1}: lists and mappings are nested more than {_DEEPEST} deep; "
                    "a network needs no more than 5"
                )
    return root


def _follow(event: yaml.AliasEvent, anchors: dict[str, yaml.Node]) -> yaml.Node:
    if event.anchor not in anchors:
        raise PenstockError(f"line {event.start_mark.line + 1}: there is no anchor {event.anchor!r}")
    return anchors[event.anchor]


def _close(node: yaml.Node) -> None:
    """Pair the keys and the values of a mapping."""
    if isinstance(node, yaml.MappingNode):
        parts = iter(node.value)
        node.value = list(zip(parts, parts, strict=True))
