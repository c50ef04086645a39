"""What a node learns of its operators while it runs: their costs, their selectivities, and the overhead of a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.coordination.measurements import OperatorMeasurements
from penstock.estimate import OperatorCosts, SelectivityEstimator
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
        self._costs = {
            query: OperatorCosts({name: network.operators[name].cost for name in names}) for query, names in queries.items()
        }
        at_most = {name: stream.max_rate if math.isfinite(stream.max_rate) else 1.0 for name, stream in network.inputs.items()}
        linear = linearize(network, at_most)
        self._selectivities = {name: _selectivity_estimator(linear.operators[name]) for name in self._operators}

    def learn(self, query: str, rows_in: Mapping[str, int], rows_out: Mapping[str, int], busy_s: float | None) -> None:
        """Learn from one batch; without a time, only selectivities."""
        if busy_s is not None:
            self._costs[query].update(rows_in, busy_s)
        for name, rows in rows_in.items():
            operator = self._operators[name]
            # A join counts pairs: a row meets the window of the other side, whose size is taken as the mean of both. With
            # windows in seconds that size depends on the rates, so rows are counted: dropping keys leaves that ratio alone.
            attempts = float(rows) if operator.windows is None or operator.timed else rows * sum(operator.windows) / 2.0
            self._selectivities[name].update(attempts, rows_out[name])

    def estimate_operators(self) -> dict[str, OperatorMeasurements]:
        """Return the cost and the selectivity of each operator, with their errors."""
        measurements = {}
        for model in self._costs.values():
            for name in model.operators:
                cost, selectivity = model.cost(name), self._selectivities[name].estimate
                measurements[name] = OperatorMeasurements(cost.value, cost.error, selectivity.value, selectivity.error)
        return measurements

    @property
    def overheads_s(self) -> dict[str, float]:
        """Seconds that a batch takes apart from its rows, by query."""
        return {query: model.overhead_s.value for query, model in self._costs.items()}

    def describe_queries(self) -> dict[str, dict[str, Any]]:
        """Return the cost of each query as a whole: seconds per row that enters its first operator, and per batch."""
        return {query: self._describe_query(model) for query, model in self._costs.items()}

    def _describe_query(self, model: OperatorCosts) -> dict[str, Any]:
        cost = model.group_cost({name: self._rows_reaching(name) for name in model.operators})
        return {
            "operators": list(model.operators),
            "cost": cost.value,
            "cost_error": cost.error,
            "overhead_s": model.overhead_s.value,
            "overhead_error": model.overhead_s.error,
            "batches": model.batches,
        }

    def _rows_reaching(self, name: str) -> float:
        """Rows that reach an operator per row that enters its query, if nothing is dropped."""
        rows = 1.0
        operator = self._operators[name]
        while len(operator.sources) == 1 and operator.sources[0] in self._operators and operator.sources[0] != name:
            operator = self._operators[operator.sources[0]]
            rows *= self._selectivities[operator.name].estimate.value
        return rows

    def snapshot(self, query: str | None = None) -> dict[str, Any]:
        """Return the state, of one query or of all, as plain JSON values."""
        models = self._costs if query is None else {query: self._costs[query]}
        operators = {name for model in models.values() for name in model.operators}
        return {
            "models": {name: model.snapshot() for name, model in models.items()},
            "ratios": {name: self._selectivities[name].snapshot() for name in self._selectivities if name in operators},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; queries and operators that are new start from declared values."""
        for query, values in state.get("models", {}).items():
            if query in self._costs:
                self._costs[query].restore(values)
        for name, values in state.get("ratios", {}).items():
            if name in self._selectivities:
                self._selectivities[name].restore(values)


def _selectivity_estimator(operator: Operator) -> SelectivityEstimator:
    """Return an estimator: a slow one for an aggregate or a join, which emits nothing for a while and then a lot."""
    if operator.timed and operator.side_rates is not None:  # rows out per row in, first at the greatest rates
        total = sum(operator.side_rates)
        shares = [rate / total if total else 0.5 for rate in operator.side_rates]
        per_row = sum(share * operator.gain(source) for share, source in zip(shares, operator.sources, strict=True))
        return SelectivityEstimator(per_row, weight=500.0, decay=0.9, surprise=math.inf)
    if operator.kind in ("aggregate", "join"):
        return SelectivityEstimator(operator.selectivity, weight=5_000.0, decay=0.98, surprise=math.inf)
    return SelectivityEstimator(operator.selectivity)
