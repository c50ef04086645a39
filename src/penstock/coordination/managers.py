"""The managers, by name."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.coordination.dfit import DFit
from penstock.coordination.follower import Follower
from penstock.coordination.local import Local
from penstock.coordination.manager import Fixed, Manager, NoShedding
from penstock.errors import PenstockError
from penstock.network.clusters import cluster_of
from penstock.network.model import Network

__all__ = ["CENTRAL", "MANAGERS", "manager_named"]

CENTRAL = ("exact", "solver", "solver-w", "fit")
"""Those that need a coordinator, which plans with the method of that name."""
MANAGERS = (NoShedding.name, Local.name, *CENTRAL, DFit.name)


def manager_named(
    name: str, network: Network, node: str, *, epsilon: float = 0.05, keep: Mapping[str, float] | None = None
) -> Manager:
    """Return the manager of a node.

    Parameters
    ----------
    name
        One of ``MANAGERS``.
    network
        The network.
    node
        The node to manage.
    epsilon
        The relative error that D-FIT may make.
    keep
        Fixed shares by gate; with them, the manager keeps these and the name does not matter.

    Raises
    ------
    PenstockError
        If there is no manager of that name, or it cannot manage this network.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=1.0).output("q", "a").build()
    >>> manager_named("wise", network, "A")
    Traceback (most recent call last):
    penstock.errors.PenstockError: there is no manager 'wise'; there are none, local, exact, solver, solver-w, fit, d-fit

    """
    if keep is not None:
        return Fixed(network, node, keep)
    if name in CENTRAL:
        return Follower(network, node)
    if name == NoShedding.name:
        return NoShedding(network, node)
    if name == Local.name:
        return Local(network, node)
    if name == DFit.name:
        cluster = cluster_of(network)[node]
        if cluster == node:
            return DFit(network, node, epsilon)
        DFit(network, cluster, epsilon)  # raises if the clusters do not form a tree
        return Follower(network, node, cluster)
    raise PenstockError(f"there is no manager {name!r}; there are {', '.join(MANAGERS)}")
