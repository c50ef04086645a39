"""What becomes of Java's errors; the store itself is tested against real services."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from penstock.spark.hadoop_store import _translate
from penstock.spark.interruption import is_interruption


def make_error(*kinds: str, message: str | None = "why") -> Any:
    """A Java exception with its causes, the outermost first."""
    cause = None
    for kind in reversed(kinds):
        named = SimpleNamespace(getName=lambda kind=kind: kind, getSimpleName=lambda kind=kind: kind.rsplit(".", 1)[-1])
        cause = SimpleNamespace(
            getClass=lambda named=named: named, getMessage=lambda: message, getCause=lambda cause=cause: cause
        )
    return SimpleNamespace(java_exception=cause)


INTERRUPTIONS = [
    "java.io.InterruptedIOException",
    "java.lang.InterruptedException",
    "java.nio.channels.ClosedByInterruptException",
]


@pytest.mark.parametrize("kind", INTERRUPTIONS)
@pytest.mark.parametrize("message", ["why", None])
@pytest.mark.parametrize("place", ["outermost", "cause"])
def test_an_interruption_is_known_as_one(kind: str, message: str | None, place: str) -> None:
    """Java's own have no message, and storage wraps them in errors of its own."""
    others = ["java.lang.IllegalStateException"]
    kinds = [kind, *others] if place == "outermost" else [*others, kind]
    assert is_interruption(_translate(make_error(*kinds, message=message)))


def test_any_other_error_is_shown_by_its_short_name() -> None:
    error = _translate(make_error("java.net.ConnectException"))
    assert str(error) == "ConnectException: why"
    assert not is_interruption(error)
