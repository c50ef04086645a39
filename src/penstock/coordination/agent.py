"""The agent of a node: measures what its queries do, decides what each batch lets in, and exchanges messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.coordination.batch_times import BatchTimes
from penstock.coordination.entry_loads import EntryLoads
from penstock.coordination.mailbox import Mailbox, NoMailbox
from penstock.coordination.manager import Limits, Manager
from penstock.coordination.measurements import Measurements, entries_of
from penstock.coordination.message_exchange import MessageExchange, describe
from penstock.coordination.node_statistics import NodeStatistics
from penstock.coordination.token_bucket import TokenBucket
from penstock.network.model import Network

__all__ = ["Agent"]

_LEAST_CAPACITY = 0.3
_LONGEST_BATCH_PACES = 2.5
_EXPLORATION = 0.01
_SWING = 0.1


# long because one lock guards all that a node knows, and every question about it
class Agent:
    """Serves one node, whatever engine runs its queries.

    The engine calls ``decide_batch`` when a batch is about to run, ``end_batch`` when it has run, ``learn`` once its counts and
    its time are known, and ``exchange_messages`` every now and then. Queries may call from threads of their own: the agent
    handles one call at a time.

    Parameters
    ----------
    network
        The network, with declared costs and selectivities.
    node
        The node to serve.
    manager
        Decides what the node may let in.
    mailbox
        Carries the manager's messages; ``None`` if it has no peers.
    pace_s
        How often a query takes a micro-batch.
    queries
        The operators of each query of the node.
    clock
        Returns the time in seconds.

    """

    def __init__(
        self,
        network: Network,
        node: str,
        manager: Manager,
        mailbox: Mailbox | None,
        pace_s: float,
        *,
        queries: Mapping[str, Sequence[str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.network, self.node, self.manager, self.pace_s = network, node, manager, pace_s
        self._capacity = network.nodes[node].capacity
        self._clock = clock
        self._lock = threading.RLock()
        self._statistics = NodeStatistics(network, queries)
        self._times = BatchTimes(pace_s)
        self._messages = MessageExchange(manager, NoMailbox() if mailbox is None else mailbox, pace_s, clock())
        self._buckets = {
            entry: TokenBucket(pace_s, is_steady=entry.partition("->")[0] in network.inputs)
            for entry in entries_of(network, node)
        }
        self._entry_loads = EntryLoads(network, node)
        self._loads = self._entry_loads.compute(Measurements.from_declaration(network, node))
        self._turns = {query: index for index, query in enumerate(queries)}
        self._limits = Limits()
        self._is_batch_cut = False
        self._expired_s = clock()

    # -- batches -------------------------------------------------------------------------------------------------------

    def decide_batch(self, query: str, rows: Mapping[str, int], now_s: float | None = None) -> dict[str, float]:
        """Decide what a batch that is about to run may let in.

        Parameters
        ----------
        query
            The query that runs it.
        rows
            The rows that the batch holds, by entry.
        now_s
            The time; by default, the clock's.

        Returns
        -------
        dict
            The keep of each gate, by name. A gate that is missing keeps everything.

        """
        now = self._clock() if now_s is None else now_s
        with self._lock:
            self.exchange_messages(now)
            self._times.begin(query, now)
            for entry, bucket in self._buckets.items():
                if entry in rows:
                    bucket.add_batch(rows[entry], now)
                else:
                    bucket.expire(now)
            self._limits = self._ask_manager()
            keep = self._admit(query, rows)
            if self.manager.is_guarded:
                self._cut(rows, keep)
            measurements = self.measurements
            self._loads = self._entry_loads.compute(measurements)
            self._messages.tell(measurements)
            self._messages.send(now)
            return keep

    def _ask_manager(self) -> Limits:
        """Return the manager's limits. If it fails, its last ones stay in force, and the guard bounds the batch anyway."""
        try:
            return self.manager.decide(self._rates())
        except Exception as error:  # whatever a planner runs into: the batch runs
            self._messages.note(f"the manager failed, so its last limits stay in force: {describe(error)}")
            return self._limits

    def _admit(self, query: str, rows: Mapping[str, int]) -> dict[str, float]:
        """Spend the allowances of a batch's entries on it and return what each gate keeps."""
        swing = self._next_swing(query)
        keep = dict(self._limits.keep)
        for entry, count in rows.items():
            bucket = self._buckets[entry]
            share = bucket.admit(count, self._limits.flows.get(entry), swing if bucket.is_steady else 0.0)
            keep[entry] = max(share, self._explored_share(entry, count)) * self._limits.keep.get(entry, 1.0)
        return keep

    def _next_swing(self, query: str) -> float:
        """Let every other batch be a little larger, one query while another's is not.

        If every batch had the same size, the cost of a batch could not be told from the cost of its rows. An arc delivers batches
        of all sizes anyway.
        """
        self._turns[query] += 1
        return _SWING if self._turns[query] % 2 else 0.0

    def _explored_share(self, entry: str, rows: int) -> float:
        """Return the share to keep whatever the limit.

        What is never let in is never measured, and may have become cheap.
        """
        cost_s = self._loads.get(entry, 0.0)
        if entry not in self._limits.flows or rows <= 0 or cost_s <= 0.0:
            return 0.0
        return min(1.0, _EXPLORATION * self.pace_s * self._capacity / (cost_s * rows))

    def _cut(self, rows: Mapping[str, int], keep: dict[str, float]) -> None:
        """Cut a batch that would take much longer than a pace, whatever the limits, or the delay would never come down again.

        A batch gets the share of the node's time that its entries have of the load that arrives. This also bounds the backlog
        after a restart.
        """
        work_s = sum(count * keep[entry] * self._loads.get(entry, 0.0) for entry, count in rows.items())
        loads = {entry: bucket.rate * self._loads.get(entry, 0.0) for entry, bucket in self._buckets.items()}
        total = sum(loads.values())
        if work_s <= 0.0 or total <= 0.0:
            return
        share = max(sum(loads[entry] for entry in rows) / total, 0.5 / len(self._turns))
        longest_s = _LONGEST_BATCH_PACES * self.pace_s * self._capacity * share
        self._is_batch_cut = work_s > longest_s
        if self._is_batch_cut:
            for entry in rows:
                keep[entry] *= longest_s / work_s

    def end_batch(self, query: str) -> None:
        """Note that the batch of a query has run."""
        with self._lock:
            self._times.end(query, self._clock())

    # -- measurements --------------------------------------------------------------------------------------------------

    def learn(self, query: str, rows_in: Mapping[str, int], rows_out: Mapping[str, int], busy_s: float | None) -> None:
        """Learn from a batch that has run.

        Parameters
        ----------
        query
            The query that ran it.
        rows_in, rows_out
            Rows that went into and came out of each operator.
        busy_s
            Seconds of CPU that all of its operators took together, or ``None`` if that is not known.

        """
        with self._lock:
            self._statistics.learn(query, rows_in, rows_out, busy_s)

    @property
    def measurements(self) -> Measurements:
        """What the node knows of itself now: the capacity left for operators, their costs and selectivities, the rates."""
        with self._lock:
            overhead = sum(overhead_s / self._times.cycle_s(query) for query, overhead_s in self._statistics.overheads_s.items())
            capacity = max(_LEAST_CAPACITY * self._capacity, self._times.headroom * self._capacity - overhead)
            return Measurements(self.node, capacity, self._statistics.estimate_operators(), self._rates())

    def _rates(self) -> dict[str, float]:
        """Return the rows per second that arrive at each entry."""
        return {entry: bucket.rate for entry, bucket in self._buckets.items()}

    def describe_query(self, query: str) -> dict[str, Any]:
        """Return what one query costs, as far as it was learnt."""
        with self._lock:
            return self._statistics.describe_query(query)

    # -- messages ------------------------------------------------------------------------------------------------------

    def exchange_messages(self, now_s: float | None = None) -> None:
        """Receive what has arrived and send what there is to send."""
        now = self._clock() if now_s is None else now_s
        with self._lock:
            self._expire_rates(now)
            self._messages.receive(now)
            self._messages.send(now)

    def _expire_rates(self, now_s: float) -> None:
        """Notice an input that has gone quiet: its query runs no batch, so nothing else would."""
        if now_s - self._expired_s < self.pace_s:
            return
        self._expired_s = now_s
        before = self._rates()
        for bucket in self._buckets.values():
            bucket.expire(now_s)
        if self._rates() != before:
            self._messages.tell(self.measurements)

    # -- state ---------------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return what a person may want to know, as plain JSON values."""
        with self._lock:
            now = self._clock()
            measurements = self.measurements
            operators = self.network.operators
            return {
                "node": self.node,
                "manager": {"name": self.manager.name, **self.manager.status()},
                "reason": self._limits.reason,
                "limits": dict(self._limits.flows),
                "measurements": measurements.to_body(),
                "declared": {name: [operators[name].cost, operators[name].selectivity] for name in measurements.operators},
                "queries": self._statistics.describe_queries(),
                "cycles_s": dict(self._times.cycles_s),
                "headroom": self._times.headroom,
                "is_batch_cut": self._is_batch_cut,
                "silent_s": self._messages.silent_peers(now),
                "ignored": dict(self._messages.ignored),
                "rejected": self._messages.rejected,
                "notes": list(self._messages.notes),
                "at_s": now,
            }

    def snapshot(self, query: str | None = None) -> dict[str, Any]:
        """Return what was learnt, from one query or from all, as plain JSON values."""
        with self._lock:
            return self._statistics.snapshot(query)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with what was learnt before a restart."""
        with self._lock:
            self._statistics.restore(state)
