"""What identifies a network: a description of all that makes it run as it does, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from penstock.network.model import ARROW, Network
from penstock.network.transport_settings import DIRECTORY

__all__ = ["describe_changes", "describe_network", "fingerprint"]


def fingerprint(network: Network) -> str:
    """Return a short text that differs between networks that run differently; costs and rates make no difference."""
    return hashlib.sha256(json.dumps(describe_network(network), sort_keys=True).encode()).hexdigest()[:16]


def describe_network(network: Network) -> dict[str, dict[str, Any]]:
    """Return all that makes a network run as it does, as plain JSON values, by part."""
    parts: dict[str, dict[str, Any]] = {}
    for name, node in network.nodes.items():
        parts[f"node {name}"] = {"capacity": node.capacity}
    for name in network.inputs:
        parts[f"input {name}"] = _describe_work(network, name)
    for name, operator in network.operators.items():
        parts[f"operator {name}"] = {
            "node": operator.node,
            "from": list(operator.sources),
            "kind": operator.kind,
            "windows": list(operator.windows) if operator.windows else None,
            "drop": operator.drop,
            **_describe_work(network, name),
        }
    for name in network.work:
        if ARROW in name:
            parts[f"link {name}"] = _describe_work(network, name)
    for name, output in network.outputs.items():
        parts[f"output {name}"] = {"from": output.source, **_describe_work(network, name)}
    if network.transport.kind != DIRECTORY:  # the default leaves no trace, so that older directories still fit
        parts["transport"] = {"kind": network.transport.kind, "name": network.transport.name}
    return parts


def _describe_work(network: Network, name: str) -> dict[str, Any]:
    """Return the fields of a part that say what it reads, does or writes."""
    return {
        field: value if isinstance(value, str | dict) else _to_plain(value) for field, value in network.work.get(name, {}).items()
    }


def _to_plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else getattr(value, "__qualname__", str(value))


def describe_changes(before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the differences between the descriptions of two networks, one line each.

    >>> describe_changes({"node A": {"capacity": 1.0}}, {"node A": {"capacity": 2.0}, "node B": {"capacity": 1.0}})
    ['node A: capacity was 1.0 and is 2.0', 'node B is new']
    """
    changes = [f"{part} is gone" for part in before if part not in now]
    for part, fields in now.items():
        if part not in before:
            changes.append(f"{part} is new")
            continue
        old = before[part]
        changes += [
            f"{part}: {field} was {old.get(field)!r} and is {fields.get(field)!r}"
            for field in dict.fromkeys((*old, *fields))
            if old.get(field) != fields.get(field)
        ]
    return changes
