"""Who is to blame when a query of a network fails, in one line."""

from __future__ import annotations

import sys

from penstock.network.model import Network
from penstock.network.queries import NodeQuery

__all__ = ["describe_failure"]


def describe_failure(network: Network, query: NodeQuery, message: str) -> str:
    """Name the operator whose function is in the traceback, or those that may be meant, with the last error."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    blamed = [name for name in query.operators if (source := _source_of(network, name)) is not None and source in message]
    if not blamed:
        blamed = [name for name in query.operators if "function" in network.work.get(name, {})] or list(query.operators)
    who = f"operator {blamed[0]!r}" if len(blamed) == 1 else f"one of the operators {', '.join(map(repr, blamed))}"
    errors = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception")) and "py4j" not in line]
    reason = errors[-1] if errors else lines[0] if lines else "it ended without a message"
    return f"{who} failed: {reason}"


def _source_of(network: Network, operator: str) -> str | None:
    """Return the file that an operator's function comes from."""
    given = network.work.get(operator, {}).get("function")
    if given is None:
        return None
    module = str(given).partition(":")[0] if isinstance(given, str) else getattr(given, "__module__", None)
    source: str | None = getattr(sys.modules.get(str(module)), "__file__", None)
    return source
