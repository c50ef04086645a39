"""A scorer that builds and solves its linear program from scratch for every point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.errors import PenstockError
from penstock.network import Network
from penstock.planning.flows import Flows, Vector

__all__ = ["cold_scorer"]


def cold_scorer(network: Network) -> Callable[[Vector], tuple[float, Vector]]:
    """Return a function from rates to score and keeps that calls ``scipy.optimize.linprog`` once per point."""
    try:
        from scipy.optimize import linprog  # noqa: PLC0415 - only for the comparison
        from scipy.sparse import csr_matrix, vstack  # noqa: PLC0415
    except ImportError as error:
        raise PenstockError("this benchmark compares with SciPy: pip install scipy") from error
    flows = Flows(network)
    inputs, count = len(flows.inputs), len(flows.locations)
    loads = csr_matrix((flows.loads.values, (flows.loads.rows, flows.loads.columns)), shape=(len(flows.nodes), count))
    sources = csr_matrix((flows.sources.values, (flows.sources.rows, flows.sources.columns)), shape=(count, count))
    flow_limits = csr_matrix(np.eye(count)[inputs:]) - sources[inputs:]
    matrix = vstack([loads, flow_limits]) if count > inputs else loads
    right = np.concatenate([flows.capacity, np.zeros(count - inputs)])

    def solve(rates: Vector) -> tuple[float, Vector]:
        bounds = [(0.0, rate) for rate in rates.tolist()] + [(0.0, None)] * (count - inputs)
        solution = linprog(-flows.value, A_ub=matrix, b_ub=right, bounds=bounds, method="highs")
        if solution.status != 0:
            raise PenstockError(f"linprog: {solution.message}")
        return -float(solution.fun), flows.keep(rates, solution.x)

    return solve
