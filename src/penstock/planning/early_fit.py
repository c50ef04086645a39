"""Early FIT: tables of feasible inputs with equally spaced samples."""

from __future__ import annotations

from typing import ClassVar

from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.fit import Fit
from penstock.planning.fit_size import TableTooLargeError
from penstock.planning.spread import AbsoluteError, Spread, TableSize

__all__ = ["EarlyFit"]


class EarlyFit(Fit):
    """Looks plans up in tables of feasible inputs with equally spaced samples, which bound the absolute error of the score.

    Dealing with Overload (Tatbul, Zdonik), section 3.2: steps of ``error / (m * quality)`` along each of m dimensions, or steps
    from the size of a table. The tables are combined as in ``Fit``. Fragments are planned apart, each with a share of the error.

    Where it fails: as ``Fit`` does. In addition, the relative error is not bounded, and near the boundary of the feasible space
    it may be several times that of ``Fit``.

    Parameters
    ----------
    network
        The network to plan for.
    error
        How far below the best the score may be, in weighted tuples per second.
    size
        The number of combinations of samples per node, at most. Give either ``error`` or ``size``. The relative error that
        follows is in ``error`` of the planner.

    Examples
    --------
    Node B of figure 1, with the selectivity that the paper's example needs. The paper counts 46 entries, because sums of 0.05
    miss two of them:

    >>> from penstock.network import NetworkBuilder
    >>> node_b = (
    ...     NetworkBuilder().node("B").input("i1").input("i2")
    ...     .operator("b1", "B", "i1", cost=3.0, selectivity=0.5).operator("b2", "B", "i2", cost=1.0)
    ...     .output("q1", "b1").output("q2", "b2").build()
    ... )
    >>> EarlyFit(node_b, error=0.1).tables["B"].generated
    48

    References
    ----------
    N. Tatbul, S. Zdonik: Dealing with Overload in Distributed Stream Processing Systems. Workshop on Networking Meets Databases
    (NetDB) 2006.
    """

    name: ClassVar[str] = "early-fit"

    def __init__(self, network: Network, *, error: float | None = None, size: int | None = None) -> None:
        if (error is None) == (size is None):
            raise PenstockError("early-fit needs either an absolute error or the size of a table, not both")
        self._asked = error, size
        if error is not None:
            super().__init__(network, None, spread=AbsoluteError(error))
        else:
            self._fit_size(network, size or 0)

    def _plan_fragments(self, epsilon: float | None, spread: Spread | None, max_entries: int | None) -> bool:  # noqa: ARG002 - none
        """Plan fragments apart, each with its share of the absolute error, or tables of the size."""
        error, size = self._asked
        if error is not None:
            return self._plan_apart(lambda part, count: EarlyFit(part, error=error / count))
        return self._plan_apart(lambda part, _: EarlyFit(part, size=size))

    def _fit_size(self, network: Network, size: int) -> None:
        """Build tables of at most this size; smaller ones if several of them have too many combinations on a node above."""
        try:
            super().__init__(network, None, spread=TableSize(size))
        except TableTooLargeError:
            if size <= 1:
                raise
            self._fit_size(network, max(1, size // 4))
