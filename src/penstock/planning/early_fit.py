"""Early FIT: the tables of paper 003, with equal steps."""

from __future__ import annotations

from typing import ClassVar

from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.fit import Fit
from penstock.planning.spread import AbsoluteError, Spread, TableSize

__all__ = ["EarlyFit"]


class EarlyFit(Fit):
    """Paper 003, section 3.2: samples in equal steps, from an absolute error of the score or from the size of the table.

    ``error`` is in weighted tuples a second: the score is at most that much below the best, however small the best is. The
    relative error of rates near the boundary may be several times what ``Fit`` keeps.

    >>> from penstock.network import NetworkBuilder
    >>> node_b = (                             # node B of figure 1, with the selectivity that the paper's example needs
    ...     NetworkBuilder().node("B").input("i1").input("i2")
    ...     .operator("b1", "B", "i1", cost=3.0, selectivity=0.5).operator("b2", "B", "i2", cost=1.0)
    ...     .output("q1", "b1").output("q2", "b2").build()
    ... )
    >>> EarlyFit(node_b, error=0.1).tables["B"].generated     # the paper counts 46; sums of 0.05 miss two of them
    48
    """

    name: ClassVar[str] = "early-fit"

    def __init__(self, network: Network, *, error: float | None = None, size: int | None = None) -> None:
        if (error is None) == (size is None):
            raise PenstockError("early-fit needs either an absolute error or the size of a table, and not both")
        spread: Spread = AbsoluteError(error) if error is not None else TableSize(size or 0)
        super().__init__(network, spread=spread)
