"""What a node learns of its operators while it runs: their costs, their selectivities, and the overhead of a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.coordination.measurements import OperatorTable
from penstock.estimate import OperatorCosts, Selectivities
from penstock.network.coefficients import linearize
from penstock.network.model import Network, Operator

__all__ = ["NodeStatistics"]


class NodeStatistics:
    """Learns the costs and selectivities of a node's operators from the counts and times of its batches.

    Parameters
    ----------
    network
        The network, with the declared values to start from.
    queries
        The operators of each of the node's queries.

    """

    def __init__(self, network: Network, queries: Mapping[str, Sequence[str]]) -> None:
        self._operators = {name: network.operators[name] for names in queries.values() for name in names}
        self._names = tuple(self._operators)
        index = {name: number for number, name in enumerate(self._names)}
        self._positions = {query: np.array([index[name] for name in names], dtype=np.int64) for query, names in queries.items()}
        self._costs = {
            query: OperatorCosts({name: network.operators[name].cost for name in names}) for query, names in queries.items()
        }
        at_most = {name: stream.max_rate if math.isfinite(stream.max_rate) else 1.0 for name, stream in network.inputs.items()}
        linear = linearize(network, at_most)
        operators = [linear.operators[name] for name in self._names]
        # An aggregate or a join emits nothing for a while and then a lot: its ratio is learned slowly.
        is_timed = np.array([operator.timed for operator in operators], dtype=bool)
        is_slow = np.array([operator.kind in ("aggregate", "join") for operator in operators], dtype=bool)
        self._selectivities = Selectivities(
            [_expect_ratio(operator) for operator in operators],
            weight=np.where(is_timed, 500.0, np.where(is_slow, 5_000.0, 20.0)),
            decay=np.where(is_timed, 0.9, np.where(is_slow, 0.98, 0.8)),
            surprise=np.where(is_slow, math.inf, 4.0),
        )
        # A join counts pairs: a row meets the window of the other side, whose size is taken as the mean of both. With windows in
        # seconds that size depends on the rates, so rows are counted: dropping keys leaves that ratio alone.
        self._attempts = np.array(
            [1.0 if operator.windows is None or operator.timed else sum(operator.windows) / 2.0 for operator in operators]
        )
        self._estimates = np.zeros((len(self._names), 4))
        self._overheads_s: dict[str, float] = {}
        self._learned = set(queries)  # queries whose estimates are out of date

    def learn(self, query: str, rows_in: Mapping[str, int], rows_out: Mapping[str, int], busy_s: float | None) -> None:
        """Learn from one batch; without a time, only selectivities."""
        model = self._costs[query]
        if busy_s is not None:
            model.update(rows_in, busy_s)
        members = self._positions[query]
        entering = np.array([rows_in.get(name, 0) for name in model.operators], dtype=np.float64)
        leaving = np.array([rows_out.get(name, 0) for name in model.operators], dtype=np.float64)
        self._selectivities.update(members, entering * self._attempts[members], leaving)
        self._learned.add(query)

    def estimate_operators(self) -> OperatorTable:
        """Return the cost and the selectivity of each operator, with their errors."""
        self._refresh()
        return OperatorTable(self._names, self._estimates)

    @property
    def overheads_s(self) -> Mapping[str, float]:
        """Seconds that a batch takes apart from its rows, by query."""
        self._refresh()
        return self._overheads_s

    def _refresh(self) -> None:
        """Take the estimates of the queries that have learned something."""
        if not self._learned:
            return
        self._estimates = self._estimates.copy()
        self._overheads_s = dict(self._overheads_s)
        self._estimates[:, 2], self._estimates[:, 3] = self._selectivities.values, self._selectivities.errors
        for query in self._learned:
            costs, errors = self._costs[query].costs
            self._estimates[self._positions[query], 0] = costs
            self._estimates[self._positions[query], 1] = errors
            self._overheads_s[query] = self._costs[query].overhead_s.value
        self._learned = set()

    def describe_queries(self) -> dict[str, dict[str, Any]]:
        """Return the cost of each query as a whole."""
        return {query: self.describe_query(query) for query in self._costs}

    def describe_query(self, query: str) -> dict[str, Any]:
        """Return the cost of one query as a whole: seconds per row that enters its first operator, and per batch."""
        model = self._costs[query]
        ratios = dict(zip(self._names, self._selectivities.values.tolist(), strict=True))
        cost = model.group_cost({name: self._rows_reaching(name, ratios) for name in model.operators})
        return {
            "operators": list(model.operators),
            "cost": cost.value,
            "cost_error": cost.error,
            "overhead_s": model.overhead_s.value,
            "overhead_error": model.overhead_s.error,
            "batches": model.batches,
        }

    def _rows_reaching(self, name: str, ratios: Mapping[str, float]) -> float:
        """Rows that reach an operator per row that enters its query, if nothing is dropped."""
        rows = 1.0
        operator = self._operators[name]
        while len(operator.sources) == 1 and operator.sources[0] in self._operators and operator.sources[0] != name:
            operator = self._operators[operator.sources[0]]
            rows *= ratios[operator.name]
        return rows

    def snapshot(self, query: str | None = None) -> dict[str, Any]:
        """Return the state, of one query or of all, as plain JSON values."""
        models = self._costs if query is None else {query: self._costs[query]}
        names = [name for model in models.values() for name in model.operators]
        members = np.concatenate([np.zeros(0, dtype=np.int64), *(self._positions[name] for name in models)])
        return {
            "models": {name: model.snapshot() for name, model in models.items()},
            "ratios": dict(zip(names, self._selectivities.snapshot(members), strict=True)),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; queries and operators that are new start from declared values."""
        for query, values in state.get("models", {}).items():
            if query in self._costs:
                self._costs[query].restore(values)
        index = {name: number for number, name in enumerate(self._names)}
        ratios = {index[name]: values for name, values in state.get("ratios", {}).items() if name in index}
        self._selectivities.restore(list(ratios.values()), np.array(list(ratios), dtype=np.int64))
        self._learned = set(self._costs)


def _expect_ratio(operator: Operator) -> float:
    """Return the selectivity to start from; of a join with windows in seconds, rows out per row in at the greatest rates."""
    if not operator.timed or operator.side_rates is None:
        return operator.selectivity
    total = sum(operator.side_rates)
    shares = [rate / total if total else 0.5 for rate in operator.side_rates]
    return sum(share * operator.gain(source) for share, source in zip(shares, operator.sources, strict=True))
