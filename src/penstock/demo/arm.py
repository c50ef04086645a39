"""One arm of the demo: runs the job on the trace and records what each batch did."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from penstock.control import Controller
from penstock.demo.job import Form, Job, Running
from penstock.demo.summary import ArmRun, Batch
from penstock.errors import JournalError, PenstockError
from penstock.journal import BatchRecord, DecisionRecord, read_journal
from penstock.observe.embedding import embed_one

__all__ = ["Tell", "run_arm"]

Tell = Callable[[ArmRun, float], None]
"""Called every half second with the arm so far and the seconds that have passed."""

_LEAD_S = 2.0
"""The query starts this long before the first row arrives, so that starting causes no backlog."""
_POLL_S = 0.5


def run_arm(
    job: Job,
    label: str,
    *,
    source: Mapping[str, Any],
    controller: str | Controller,
    seconds: float,
    tell: Tell,
    form: Form = "by batch",
    double_at_s: float = math.inf,
    after: Callable[[int], None] | None = None,
) -> ArmRun:
    """Run the job on the trace and stop it when the time is up, even within a batch.

    Parameters
    ----------
    job
        The job.
    label
        The name of the arm.
    source
        Options of the replay source.
    controller
        The controller, or its name.
    seconds
        How long to run.
    tell
        Receives the progress.
    form
        The sink of the job.
    double_at_s
        Rows that arrive from this second on take twice the work.
    after
        Called with the number of each batch that has ended.

    """
    begin_s = time.time() + _LEAD_S
    options = {**source, "start": f"{begin_s:.6f}"}
    running = job.start(options, controller, form=form, double_from_s=begin_s + double_at_s, after=after)
    try:
        while (passed_s := time.time() - begin_s) < seconds:
            if (failure := running.query.exception()) is not None:
                raise failure
            tell(_read_progress(running, label, begin_s, seconds), max(0.0, passed_s))
            time.sleep(_POLL_S)
        run = _read_progress(running, label, begin_s, seconds)
    finally:
        running.stop()
    run = replace(run, query=_read_query(running, label))
    tell(run, seconds)
    return run


def _read_query(running: Running, label: str) -> Mapping[str, Any] | None:
    try:
        return embed_one(str(running.journal), label, label)
    except PenstockError:  # no batch began
        return None


def _read_progress(running: Running, label: str, begin_s: float, seconds: float) -> ArmRun:
    try:
        state = read_journal(running.journal)
    except JournalError:  # there is none before the first batch
        return ArmRun(label, seconds, (), 1.0)
    last = running.query.lastProgress  # recentProgress makes thousands of calls to the JVM while the job runs
    reports = {last.batchId: last} if last is not None and "addBatch" in last.durationMs else {}
    batches = []
    for batch_id, record in sorted(state.batches.items()):
        batch = _to_batch(record, reports.get(batch_id), begin_s, state.decision_for(batch_id))
        if batch is not None and 0.0 < batch.end_s <= seconds:
            batches.append(batch)
    keep = state.decisions[-1].keep if state.decisions else 1.0
    return ArmRun(label, seconds, tuple(batches), keep, tuple(state.errors))


def _to_batch(record: BatchRecord, report: Any, begin_s: float, decision: DecisionRecord | None) -> Batch | None:
    """Return a batch in seconds since the trace began, or ``None`` if it has not ended.

    The journal knows the end of a batch only when the next one starts; Spark reports it earlier.
    """
    start_s, end_s = record.start_s, record.end_s
    if end_s is None and report is not None:
        start_s = datetime.fromisoformat(report.timestamp).timestamp()
        end_s = start_s + report.durationMs["triggerExecution"] / 1e3
    if start_s is None or end_s is None:
        return None
    offered, kept = (sum(counts) for counts in zip(*record.gates.values(), strict=True))
    delay_s = end_s - record.mean_arrival_s if record.mean_arrival_s is not None else 0.0
    keep = record.keep if record.keep is not None else 1.0
    lines = [rows.line / 1e6 - begin_s for rows in ((decision.older or {}) if decision is not None else {}).values()]
    expired = sum((record.expired or {}).values())
    line_s = max(lines, default=-math.inf)
    return Batch(start_s - begin_s, end_s - begin_s, offered, kept, keep, delay_s, line_s, expired)
