"""The agent of a node: what it measures, what it lets in, and what it says. It knows nothing of the engine it serves."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.coordination.mailbox import Mailbox, Message
from penstock.coordination.manager import Limits, Manager
from penstock.coordination.measurements import Measurements, OperatorMeasurements, entries_of, with_measurements
from penstock.errors import PenstockError
from penstock.estimate import OperatorCosts, Selectivity
from penstock.network.coefficients import Coefficients, part_of
from penstock.network.model import Network, Operator

__all__ = ["Agent", "TokenBucket"]

_LEAST_CAPACITY = 0.3
_LATE, _TIMELY = 1.2, 1.05  # lengths of a batch, in paces
_DOWN, _UP, _LEAST_HEADROOM = 0.02, 0.02, 0.9
_LONGEST = 2.5  # how long a batch may take, in paces
_ALIVE_S = 2.0
_SILENT_PACES = 10.0
_EXPLORE = 0.01
_SWING = 0.1


class TokenBucket:
    """How many tuples a second want in at an entry, and how many of a batch may.

    An input from outside is a steady stream: a batch of it holds what came since the batch before. An arc from another node
    brings whole batches, at times two and then none, so its rate is taken over several. What may pass is saved up while nothing
    comes, for a quarter of a pace at an input and for a whole one at an arc: then a late batch is not punished, and no burst
    makes a batch much longer than it should be.
    """

    def __init__(self, pace_s: float, *, steady: bool) -> None:
        self._pace_s = pace_s
        self.steady = steady
        self._window_s = pace_s * (1.0 if steady else 4.0)
        self._burst_s = pace_s * (1.25 if steady else 2.0)
        self._seen: deque[tuple[float, int]] = deque()
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._saved: float | None = None
        self.rate = 0.0
        """Tuples a second."""

    def arrive(self, rows: int, now_s: float) -> float:
        """Take in a batch; the seconds since the one before, within bounds."""
        since = self._burst_s if self._last_s is None else now_s - self._last_s
        self._first_s = now_s if self._first_s is None else self._first_s
        self._last_s = now_s
        elapsed = min(max(since, self._pace_s), self._burst_s)
        if self.steady:
            self.rate = rows / elapsed
        else:
            self._seen.append((now_s, rows))
            self._forget(now_s)
            known_s = max(now_s - self._first_s, self._pace_s)
            self.rate = sum(count for _, count in self._seen) / min(self._window_s, known_s + self._pace_s)
        return elapsed

    def _forget(self, now_s: float) -> None:
        while self._seen and self._seen[0][0] <= now_s - self._window_s:
            self._seen.popleft()

    def idle(self, now_s: float) -> None:
        """Take in that nothing has come for a while."""
        if self._last_s is not None and now_s - self._last_s > 3.0 * self._pace_s:
            self.rate = 0.0
            self._seen.clear()

    def keep(self, rows: int, flow: float | None, elapsed: float, swing: float = 0.0) -> float:
        """The share of a batch that may pass, at so many tuples a second; all of it without a limit.

        ``swing`` lets a part more pass this time; the next batch makes up for it.
        """
        if flow is None:
            self._saved = None
            return 1.0
        saved = min((self._saved or 0.0) + flow * elapsed, flow * self._burst_s)
        keep = min(1.0, max(0.0, saved * (1.0 + swing)) / rows) if rows > 0 else 1.0
        self._saved = saved - keep * rows
        return keep


def _ratio(operator: Operator) -> Selectivity:
    """What an aggregate or a join gives comes in jerks, nothing for a while and then much: it takes long to know."""
    if operator.kind in ("aggregate", "join"):
        return Selectivity(operator.selectivity, weight=5_000.0, decay=0.98, surprise=math.inf)
    return Selectivity(operator.selectivity)


class Agent:
    """Serves one node. Queries call it from their own threads, so whatever it does is done one at a time.

    - ``arriving`` when a batch is about to run: its gates' keeps.
    - ``finished`` when it has run.
    - ``measured`` when all is known of it: rows into and out of its operators, and the seconds they took.
    - ``pump`` now and then: messages.
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
        self._mailbox, self._clock = mailbox, clock
        self._lock = threading.RLock()
        operators = network.operators
        self._models = {query: OperatorCosts({name: operators[name].cost for name in names}) for query, names in queries.items()}
        self._ratios = {name: _ratio(operators[name]) for names in queries.values() for name in names}
        self._demands = {
            entry: TokenBucket(pace_s, steady=entry.partition("->")[0] in network.inputs) for entry in entries_of(network, node)
        }
        self._loads = Coefficients(part_of(network, node)).load
        self._cycles: dict[str, float] = {}
        self._started: dict[str, float] = {}
        self._turns: dict[str, int] = {}
        self._lengths: dict[str, float] = {}
        self._headroom = 1.0
        self.guarded = False
        """Whether the last batch was cut short by the guard."""
        self._limits = Limits()
        self._said_s: dict[str, float] = {}
        self._rested_s = clock()
        self._began_s = clock()
        self._heard: dict[str, float] = {}
        self.wrong = 0
        """Messages that made no sense."""
        self.notes: list[str] = []

    # -- what it lets in -----------------------------------------------------------------------------------------------

    def arriving(self, query: str, rows: Mapping[str, int], now_s: float | None = None) -> dict[str, float]:
        """Return the keep of each gate, by name, for a batch that holds these rows at its entries."""
        now = self._clock() if now_s is None else now_s
        with self._lock:
            self.pump(now)
            if query in self._started:
                cycle = now - self._started[query]
                self._cycles[query] = 0.7 * self._cycles.get(query, cycle) + 0.3 * cycle
            self._started[query] = now
            swing = self._swing(query)
            elapsed = {entry: self._demands[entry].arrive(count, now) for entry, count in rows.items()}
            for entry, demand in self._demands.items():
                if entry not in rows:
                    demand.idle(now)
            demand_rates = {entry: demand.rate for entry, demand in self._demands.items()}
            self._limits = self.manager.decide(demand_rates)
            keep = dict(self._limits.keep)
            for entry, count in rows.items():
                flow = self._limits.flows.get(entry)
                allowed = self._demands[entry].keep(count, flow, elapsed[entry], swing if self._demands[entry].steady else 0.0)
                keep[entry] = max(allowed, self._explored(entry, count)) * self._limits.keep.get(entry, 1.0)
            if self.manager.guards:
                self._guard(rows, keep)
            measurements = self.measurements()
            self._loads = Coefficients(part_of(with_measurements(self.network, {self.node: measurements}), self.node)).load
            self.manager.learn(measurements)
            self._speak(now)
            return keep

    def _guard(self, rows: Mapping[str, int], keep: dict[str, float]) -> None:
        """Whatever the plan: no batch may take much longer than a pace, or the delay would never come down again.

        Its share of the node's time is its share of what wants in. That bounds what a restart finds waiting, too.
        """
        work = sum(count * keep[entry] * self._loads.get(entry, 0.0) for entry, count in rows.items())
        wanted = {entry: demand.rate * self._loads.get(entry, 0.0) for entry, demand in self._demands.items()}
        total, own = sum(wanted.values()), sum(wanted[entry] for entry in rows)
        if work <= 0.0 or total <= 0.0:
            return
        most = _LONGEST * self.pace_s * self.network.nodes[self.node].capacity * max(own / total, 1.0 / len(self._models) / 2.0)
        self.guarded = work > most
        if self.guarded:
            for entry in rows:
                keep[entry] *= most / work

    def _adjust(self) -> None:
        """The headroom of paper 002, from what is seen: batches that take too long mean that the node can do less."""
        late = max(self._lengths.values()) / self.pace_s
        if late > _LATE:
            self._headroom = max(_LEAST_HEADROOM, self._headroom * (1.0 - _DOWN * min(1.0, late - _LATE)))
        elif late < _TIMELY:
            self._headroom = min(1.0, self._headroom + _UP)

    def _swing(self, query: str) -> float:
        """A little more every other time, which the next batch makes up for; queries against each other.

        Where every batch has the same size, what a batch costs can't be told from what its rows cost. An arc brings batches of
        all sizes anyway.
        """
        self._turns[query] = self._turns.get(query, list(self._models).index(query)) + 1
        return _SWING if self._turns[query] % 2 else 0.0

    def _explored(self, entry: str, rows: int) -> float:
        """A share that is kept whatever the plan: what is never let in is never measured again, and may have become cheap."""
        cost = self._loads.get(entry, 0.0)
        if entry not in self._limits.flows or rows <= 0 or cost <= 0.0:
            return 0.0
        return min(1.0, _EXPLORE * self.pace_s * self.network.nodes[self.node].capacity / (cost * rows))

    def finished(self, query: str) -> None:
        """Take in that the batch of a query has run."""
        with self._lock:
            length = self._clock() - self._started[query]
            self._lengths[query] = 0.7 * self._lengths.get(query, length) + 0.3 * length
            self._adjust()

    # -- what it measures ----------------------------------------------------------------------------------------------

    def measured(self, query: str, into: Mapping[str, int], out: Mapping[str, int], busy_s: float | None) -> None:
        """Take in one batch."""
        with self._lock:
            if busy_s is not None:
                self._models[query].update(into, busy_s)
            for name, rows in into.items():
                operator = self.network.operators[name]
                if operator.windows is None:
                    self._ratios[name].update(rows, out[name])
                else:  # of all pairs: a tuple meets the window of the other side, here taken as the mean of both
                    self._ratios[name].update(rows * sum(operator.windows) / 2.0, out[name])

    def measurements(self) -> Measurements:
        """What is known of the node now."""
        node = self.network.nodes[self.node]
        overhead = sum(
            model.overhead_s.value / max(self.pace_s, self._cycles.get(query, self.pace_s))
            for query, model in self._models.items()
        )
        operators = {}
        for model in self._models.values():
            for name in model.operators:
                cost, ratio = model.cost(name), self._ratios[name].estimate
                operators[name] = OperatorMeasurements(cost.value, cost.error, ratio.value, ratio.error)
        capacity = max(_LEAST_CAPACITY * node.capacity, self._headroom * node.capacity - overhead)
        rates = {entry: demand.rate for entry, demand in self._demands.items()}
        return Measurements(self.node, capacity, operators, rates)

    # -- what it says --------------------------------------------------------------------------------------------------

    def pump(self, now_s: float | None = None) -> None:
        """Take in what has come and say what there is to say."""
        now = self._clock() if now_s is None else now_s
        with self._lock:
            self._rest(now)
            if self._mailbox is None:
                return
            for message in self._received():
                self._heard[message.sender] = now
                try:
                    self.manager.hear(message)
                except PenstockError as error:
                    self.wrong += 1
                    self._note(f"from {message.sender}: {error}")
            self._speak(now)

    def _received(self) -> list[Message]:
        try:
            return self._mailbox.receive() if self._mailbox is not None else []
        except (OSError, PenstockError) as error:  # a full disk passes; the messages are still there
            self._note(f"messages could not be read: {error}")
            return []

    def _rest(self, now: float) -> None:
        """A query without rows runs no batch, so that its input has gone quiet shows only here."""
        if now - self._rested_s < self.pace_s:
            return
        self._rested_s = now
        before = [demand.rate for demand in self._demands.values()]
        for demand in self._demands.values():
            demand.idle(now)
        if [demand.rate for demand in self._demands.values()] != before:
            measurements = self.measurements()
            self.manager.decide(measurements.rates)  # for what it tells others: there is no batch to decide on
            self.manager.learn(measurements)

    def _speak(self, now: float) -> None:
        if self._mailbox is None:
            return
        try:
            said = self.manager.say()
            said += [(peer, "alive", {}) for peer in self.manager.peers if now - self._said_s.get(peer, now) > _ALIVE_S]
            for to, kind, body in said:
                if not self._mailbox.send(to, kind, body):
                    self.manager.unheard(to, kind)
                self._said_s[to] = now
            for peer in self.manager.peers:
                self._said_s.setdefault(peer, now)
        except OSError as error:
            self._note(f"a message could not be sent: {error.strerror}")

    def _note(self, message: str) -> None:
        if message not in self.notes:
            self.notes = [*self.notes, message][-20:]

    def silent(self, now_s: float) -> dict[str, float]:
        """Peers that have not been heard of for long, with the seconds since."""
        since = {peer: now_s - self._heard.get(peer, self._began_s) for peer in self.manager.peers}
        return {peer: seconds for peer, seconds in since.items() if seconds > max(_SILENT_PACES * self.pace_s, 3.0 * _ALIVE_S)}

    # -- what it shows and keeps ---------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return what a person may want to see, as plain JSON values."""
        with self._lock:
            now = self._clock()
            measurements = self.measurements()
            return {
                "node": self.node,
                "manager": {"name": self.manager.name, **self.manager.status()},
                "why": self._limits.why,
                "limits": dict(self._limits.flows),
                "measurements": measurements.to_body(),
                "declared": {
                    name: [self.network.operators[name].cost, self.network.operators[name].selectivity]
                    for name in measurements.operators
                },
                "groups": {query: self._group(query) for query in self._models},
                "cycles_s": dict(self._cycles),
                "headroom": self._headroom,
                "guarded": self.guarded,
                "silent_s": self.silent(now),
                "ignored": dict(self._mailbox.ignored) if self._mailbox is not None else {},
                "wrong": self.wrong,
                "notes": list(self.notes),
                "at_s": now,
            }

    def _group(self, query: str) -> dict[str, Any]:
        """The operators of a query as one: seconds for each tuple that enters its first, with the overhead of a batch."""
        model = self._models[query]
        cost = model.group_cost({name: self._share(name) for name in model.operators})
        return {
            "operators": list(model.operators),
            "cost": cost.value,
            "cost_error": cost.error,
            "overhead_s": model.overhead_s.value,
            "overhead_error": model.overhead_s.error,
            "batches": model.batches,
        }

    def _share(self, name: str) -> float:
        """Tuples that reach an operator for one that comes into its query, with nothing dropped."""
        share = 1.0
        operator = self.network.operators[name]
        while len(operator.sources) == 1 and operator.sources[0] in self._ratios and operator.sources[0] != name:
            operator = self.network.operators[operator.sources[0]]
            share *= self._ratios[operator.name].estimate.value
        return share

    def snapshot(self) -> dict[str, Any]:
        """Return what was learnt as plain JSON values."""
        with self._lock:
            return {
                "models": {query: model.snapshot() for query, model in self._models.items()},
                "ratios": {name: ratio.snapshot() for name, ratio in self._ratios.items()},
            }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what was learnt before a restart."""
        with self._lock:
            for query, values in state.get("models", {}).items():
                if query in self._models:
                    self._models[query].restore(values)
            for name, values in state.get("ratios", {}).items():
                if name in self._ratios:
                    self._ratios[name].restore(values)
