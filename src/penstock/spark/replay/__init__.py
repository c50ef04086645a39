"""The replay source: plays an arrival process or a recorded trace against the wall clock, on time to a fraction of a second.

Use ``spark.readStream.format("penstock-replay")`` after :func:`register_replay`. Row n is always the same row and arrives at
``t0 + t[n] / speed``; it cannot be read earlier. The offset ``{"n": rows, "t0": epoch seconds}`` carries t0 through the
checkpoint. So a restarted query continues where it stopped, gets what became due in the meantime as its backlog, and replays an
unfinished batch with the same rows.

Where it fails: the planner and every Python worker hold all arrival times in memory (8 bytes each). A worker generates them
for its first batch, which is late by as much. Keep the trace short, and use ``loop``, ``repeat`` or ``speed`` for more. If the
file or the options change under an old checkpoint, the same numbers stand for different rows.

``options`` parses what the user wrote, ``events`` loads or generates the arrivals, ``rows`` builds the rows of a range,
``reader`` says what is due, ``source`` is what Spark registers, and
``registration`` does that.
"""

from __future__ import annotations

from penstock.spark.replay.registration import REPLAY, register_replay

__all__ = ["REPLAY", "register_replay"]
