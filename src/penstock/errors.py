"""Errors that Penstock raises: one line that names the value, the place and what would be right."""

from __future__ import annotations

__all__ = ["JournalError", "PenstockError"]


class PenstockError(ValueError):
    """Something the caller can put right; the message is one line and says how."""


class JournalError(PenstockError):
    """The journal can't be opened, belongs to another job, or can't be written."""
