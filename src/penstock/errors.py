"""The errors that Penstock raises: each is one line that says what is wrong, where, and what to do."""

from __future__ import annotations

__all__ = ["JournalError", "PenstockError"]


class PenstockError(ValueError):
    """Something that the caller can correct; the message is one line and says how."""


class JournalError(PenstockError):
    """The journal can't be opened or written, or belongs to another job."""
