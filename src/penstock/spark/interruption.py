"""A query that is stopped within a batch: let Spark see its own interruption."""

from __future__ import annotations

__all__ = ["shorten_interruption"]

_INTERRUPTIONS = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)


def shorten_interruption(error: Exception) -> None:
    """Raise an error that Spark knows as its own interruption, if that is what stopped a function within a batch.

    Spark looks for it with a regular expression that overflows the stack on the text of a whole Java stack trace.
    """
    text = str(error)
    for name in _INTERRUPTIONS:
        if name in text:
            raise InterruptedError(f"py4j.protocol.Py4JJavaError: An error occurred while calling a sink: {name}") from None
