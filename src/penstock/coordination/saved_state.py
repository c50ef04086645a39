"""What a coordinator remembers over a restart: the plan in force, and what nodes have measured."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from pathlib import Path

from penstock.coordination.announcements import Announcements
from penstock.coordination.measurements import Measurements
from penstock.coordination.reports import Reports
from penstock.errors import PenstockError
from penstock.filesystem import write_atomically

__all__ = ["SavedState"]

log = logging.getLogger("penstock")


class SavedState:
    """The state of a coordinator in a file.

    Parameters
    ----------
    path
        The file; ``None`` to remember nothing.
    announcements, reports
        What is saved and restored.
    """

    def __init__(self, path: Path | None, announcements: Announcements, reports: Reports) -> None:
        self._path, self._announcements, self._reports = path, announcements, reports

    def save(self) -> None:
        """Write the file; one that can't be written is only said."""
        if self._path is None:
            return
        measurements = [reported.to_body() for reported in self._reports.measurements.values()]
        content = {**self._announcements.describe_in_force(), "measurements": measurements}
        try:
            write_atomically(self._path, json.dumps(content).encode())
        except OSError as error:
            log.warning("the coordinator's state could not be written to %s: %s", self._path, error.strerror)

    def restore(self, nodes: Collection[str]) -> None:
        """Continue with the saved plan, its number, and the measurements of these nodes; what can't be read is ignored."""
        if self._path is None or not self._path.exists():
            return
        try:
            content = json.loads(self._path.read_text())
            measurements = [Measurements.from_body(body) for body in content["measurements"]]
            self._announcements.resume(content)
        except (OSError, ValueError, KeyError, TypeError, PenstockError) as error:
            log.warning("the coordinator's state in %s cannot be used and is ignored: %s", self._path, error)
            return
        self._reports.measurements = {reported.node: reported for reported in measurements if reported.node in nodes}
