"""A query that is stopped within a batch: let Spark see its own interruption."""

from __future__ import annotations

__all__ = ["is_interruption", "shorten_interruption"]

_INTERRUPTIONS = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)


def is_interruption(error: Exception) -> bool:
    """Whether an error says that Spark was interrupted, as a query is that is stopped.

    >>> is_interruption(RuntimeError("An error occurred while calling o1.get: java.lang.InterruptedException"))
    True
    """
    return _find_name(error) is not None


def shorten_interruption(error: Exception) -> None:
    """Raise an error that Spark knows as its own interruption, if that is what stopped a function within a batch.

    Spark looks for it with a regular expression that overflows the stack on the text of a whole Java stack trace.
    """
    if (name := _find_name(error)) is not None:
        raise InterruptedError(f"py4j.protocol.Py4JJavaError: An error occurred while calling a sink: {name}") from None


def _find_name(error: Exception) -> str | None:
    text = str(error)
    return next((name for name in _INTERRUPTIONS if name in text), None)
