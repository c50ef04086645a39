"""The order in which one node drops at its locations: the least quality per unit of load first."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.planning.flows import Flows, Vector
from penstock.planning.sparse_matrix import expand_ranges

__all__ = ["DropOrder"]

Indices = NDArray[np.int64]
_NEGLIGIBLE = 1e-9
_TIE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    steps: Indices
    rank: Indices
    """By location: when its turn comes; a location whose turn never comes ranks after all others."""
    load: Vector
    quality: Vector
    """By step, as load: per tuple that arrives."""


class DropOrder:
    """The order in which one node drops at its locations (Staying FIT, section 6.2.2).

    The location with the smallest ratio of quality to load comes first. Then the ratios of all locations upstream are updated,
    because dropping there no longer saves or loses what this location drops. Without the updates, the order is wrong on one
    network in seven. On one node the order does not depend on the rates, and shedding in this order is optimal: a set of drops
    is a union of subtrees, so the set with the smallest ratio is a single subtree.

    The steps of the paper need not be taken one by one. When a location's turn comes, exactly the locations downstream with a
    smaller ratio have been closed before. So its ratio at its turn follows from theirs: sort them, and leave out the smallest as
    long as they are below the ratio of the rest. One pass from the deepest locations to the inputs finds all ratios, in a few
    array operations per level, and sorting the ratios gives the order.

    Nothing is dropped where the inputs in ``fixed`` enter; that is left to the nodes that feed them.
    """

    def __init__(self, flows: Flows, *, fixed: Collection[str] = ()) -> None:
        self.flows = flows
        self._is_fixed = np.array([location.name in fixed for location in flows.locations], dtype=bool)

    def update(self) -> None:
        """Find the order again the next time it is needed: the numbers of ``flows`` have changed."""
        for name in ("_order", "_reach", "saved", "lost"):
            self.__dict__.pop(name, None)

    @property
    def steps(self) -> Indices:
        """The locations in drop order, by index in ``flows.locations``."""
        return self._order.steps

    @cached_property
    def _order(self) -> _Order:
        flows, count = self.flows, len(self.flows.locations)
        load: Vector = np.asarray(np.bincount(flows.loads.columns, flows.loads.values, minlength=count), dtype=np.float64)
        turns = _find_turns(flows, flows.value, load, self._is_fixed)
        candidates = np.flatnonzero(np.isfinite(turns.ratio))
        ordered = candidates[np.lexsort((candidates, turns.ratio[candidates]))]
        rank = np.full(count, count, dtype=np.int64)
        rank[ordered] = np.arange(ordered.size)
        steps = ordered[_find_last_arrivals(flows, rank)[ordered] > rank[ordered]]
        return _Order(steps, rank, turns.load[steps], turns.quality[steps])

    @cached_property
    def saved(self) -> list[Vector]:
        """By step: the load that dropping everything there saves, per unit of each input rate, after all earlier steps."""
        return list(self._order.load[:, None] * self._reach)

    @cached_property
    def lost(self) -> list[Vector]:
        """By step: the quality that dropping everything there loses, per unit of each input rate, after all earlier steps."""
        return list(self._order.quality[:, None] * self._reach)

    @cached_property
    def _reach(self) -> NDArray[np.float64]:
        """By step and input: the tuples that arrive per tuple that enters, after all earlier steps."""
        flows = self.flows
        has_merges = np.any(np.bincount(flows.sources.rows, minlength=1) > 1)
        if not has_merges:  # then nothing upstream of a step has been dropped before
            return self._arriving(np.ones(len(flows.locations), dtype=bool))[self.steps]
        reach = np.zeros((self.steps.size, len(flows.inputs)))
        for number, step in enumerate(self.steps.tolist()):
            reach[number] = self._arriving(self._order.rank >= self._order.rank[step])[step]
        return reach

    def _arriving(self, is_open: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return, by location and input, the tuples that arrive per tuple that enters, given the open locations."""
        flows = self.flows
        arriving = np.zeros((len(flows.locations), len(flows.inputs)))
        arriving[: len(flows.inputs)] = np.eye(len(flows.inputs))
        passing = arriving * is_open[:, None]
        for members, matrix in flows.levels:
            arriving_here = np.zeros((members.size, len(flows.inputs)))
            np.add.at(arriving_here, matrix.rows, matrix.values[:, None] * passing[matrix.columns])
            arriving[members] = arriving_here
            passing[members] = arriving_here * is_open[members, None]
        return arriving

    def shed_to(self, rates: Vector, capacity: float) -> Vector:
        """Return the keep at each location that brings the load at these rates down to the capacity.

        All locations up to one drop everything, and that one drops a share. It is found by bisection: the load falls with each.
        """
        flows = self.flows

        def load_after(closed: int) -> float:
            keep = np.ones(len(flows.locations))
            keep[self.steps[:closed]] = 0.0
            return float((flows.loads @ flows.propagate(rates, keep)).sum())

        keep = np.ones(len(flows.locations))
        low, high = 0, self.steps.size  # after `low` steps the load is too high, after `high` it is not, if it can be
        before = load_after(0)
        after = load_after(high) if high else before
        if before <= capacity:
            return keep
        while high - low > 1:
            middle = (low + high) // 2
            load = load_after(middle)
            if load > capacity:
                low, before = middle, load
            else:
                high, after = middle, load
        keep[self.steps[:low]] = 0.0
        if high > low:
            keep[self.steps[low]] = min(1.0, max(0.0, (capacity - after) / (before - after))) if before > after else 0.0
        return keep

    def shed(self, rates: NDArray[np.float64], excess: Vector) -> tuple[NDArray[np.float64], Vector, Vector]:
        """Shed the excess load of each row of rates.

        Returns the keep at each location, the quality lost, and the excess that remains after all steps, each by row.
        """
        keep = np.ones((rates.shape[0], len(self.flows.locations)))
        remaining, lost = np.maximum(excess, 0.0), np.zeros(rates.shape[0])
        for location, saved, quality in zip(self.steps.tolist(), self.saved, self.lost, strict=True):
            savable = rates @ saved
            dropped = np.divide(remaining, savable, out=np.where(remaining > 0, 1.0, 0.0), where=savable > 0)
            dropped = np.minimum(dropped, 1.0)
            dropped[remaining <= 0] = 0.0
            keep[:, location] = 1.0 - dropped
            remaining = np.where(dropped < 1.0, 0.0, remaining - savable)
            lost += dropped * (rates @ quality)
        return keep, lost, np.maximum(remaining, 0.0)


@dataclass(slots=True, eq=False)
class _Turns:
    """By location, when its turn comes: quality and load per tuple that passes, and their ratio; infinite if it never comes."""

    ratio: Vector
    quality: Vector
    load: Vector


@dataclass(slots=True, eq=False)
class _Bundles:
    """What is downstream of each location, its own closing included: items that are closed apart, each at a ratio of its own.

    Those of a location are ``count`` items from ``start`` on. Quality and load are per tuple that passes the location.
    """

    start: Indices
    count: Indices
    location: Indices
    ratio: Vector
    quality: Vector
    load: Vector

    def append(self, members: Indices, counts: Indices, location: Indices, columns: tuple[Vector, Vector, Vector]) -> None:
        """Add the bundles of some locations, one after the other."""
        self.start[members] = self.location.size + np.cumsum(counts) - counts
        self.count[members] = counts
        self.location = np.concatenate([self.location, location])
        self.ratio, self.quality, self.load = (
            np.concatenate([old, new]) for old, new in zip((self.ratio, self.quality, self.load), columns, strict=True)
        )


def _find_turns(flows: Flows, quality: Vector, load: Vector, is_fixed: NDArray[np.bool_]) -> _Turns:
    """Go from the deepest locations to the inputs and find the quality and the load of each at its turn."""
    count = quality.size
    turns = _Turns(np.full(count, np.inf), quality.copy(), load.copy())
    empty = np.zeros(0)
    bundles = _Bundles(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(0, np.int64), empty, empty, empty)
    order = np.argsort(flows.sources.columns, kind="stable")  # arcs between locations, by their upstream end
    arc_counts = np.bincount(flows.sources.columns, minlength=count)
    arc_starts = np.cumsum(arc_counts) - arc_counts
    has_merges = bool(np.any(np.bincount(flows.sources.rows, minlength=1) > 1))
    inputs = np.arange(len(flows.inputs))
    for members in (*(members for members, _ in reversed(flows.levels)), inputs):
        counts = arc_counts[members]
        arcs = order[expand_ranges(arc_starts[members], counts)]
        below, gains = flows.sources.rows[arcs], flows.sources.values[arcs]
        sizes = bundles.count[below]
        items = expand_ranges(bundles.start[below], sizes)
        owner = np.repeat(np.repeat(np.arange(members.size), counts), sizes)
        scale = np.repeat(gains, sizes)
        _close_level(turns, bundles, members, (items, owner, scale), is_fixed, has_merges=has_merges)
    return turns


def _close_level(
    turns: _Turns,
    bundles: _Bundles,
    members: Indices,
    found: tuple[Indices, Indices, Vector],
    is_fixed: NDArray[np.bool_],
    *,
    has_merges: bool,
) -> None:
    """Find the turns of locations whose downstream locations are all done."""
    items, owner, scale = found
    location, ratio = bundles.location[items], bundles.ratio[items]
    quality, load = bundles.quality[items] * scale, bundles.load[items] * scale
    if has_merges:  # an item may be reached on several paths
        _, first, group = np.unique(owner * turns.ratio.size + location, return_index=True, return_inverse=True)
        quality, load = (np.bincount(group, values, minlength=first.size).astype(np.float64) for values in (quality, load))
        owner, location, ratio = owner[first], location[first], ratio[first]
    order = np.lexsort((location, ratio, owner))
    owner, location = owner[order], location[order]
    ratio, quality, load = ratio[order], quality[order], load[order]
    sizes = np.bincount(owner, minlength=members.size)
    starts = np.cumsum(sizes) - sizes
    own_quality, own_load = turns.quality[members], turns.load[members]
    total_quality = own_quality + np.bincount(owner, quality, minlength=members.size)
    total_load = own_load + np.bincount(owner, load, minlength=members.size)
    stays = _find_rest(owner, starts, ratio, (quality, total_quality), (load, total_load))
    stays &= ~is_fixed[members][owner]
    at_turn_quality = own_quality + np.bincount(owner, quality * stays, minlength=members.size)
    at_turn_load = own_load + np.bincount(owner, load * stays, minlength=members.size)
    can_close = (at_turn_load > _NEGLIGIBLE * total_load) & ~is_fixed[members]
    at_turn = np.divide(at_turn_quality, at_turn_load, out=np.full(members.size, np.inf), where=can_close)
    # Rounding must not change the order: what stays is closed after the location, what does not stay before it.
    first = np.full(members.size, np.inf)
    np.minimum.at(first, owner[stays], ratio[stays])
    last = np.full(members.size, -np.inf)
    np.maximum.at(last, owner[~stays], ratio[~stays])
    at_turn = np.maximum(np.minimum(at_turn, np.where(can_close, first, np.inf)), np.nextafter(last, np.inf))
    turns.ratio[members], turns.quality[members], turns.load[members] = at_turn, at_turn_quality, at_turn_load
    # What was closed before stays an item of its own; the rest is closed together with the location.
    apart = ~stays
    owners = np.concatenate([np.arange(members.size), owner[apart]])
    by_owner = np.argsort(owners, kind="stable")
    columns = ((at_turn, ratio), (at_turn_quality, quality), (at_turn_load, load))
    bundles.append(
        members,
        np.bincount(owners, minlength=members.size),
        np.concatenate([members, location[apart]])[by_owner],
        tuple(np.concatenate([own, item[apart]])[by_owner] for own, item in columns),  # type: ignore[arg-type]
    )


def _find_rest(
    owner: Indices, starts: Indices, ratio: Vector, quality: tuple[Vector, Vector], load: tuple[Vector, Vector]
) -> NDArray[np.bool_]:
    """Return which items, sorted by ratio for each owner, are not below the ratio of the owner with the items after them.

    The sums are relative to the owner's total, so that owners of other magnitudes do not cost digits.
    """
    if not owner.size:
        return np.zeros(0, dtype=bool)
    remaining = []
    for values, total in (quality, load):
        shares = np.divide(values, total[owner], out=np.zeros_like(values), where=total[owner] > 0)
        before = np.cumsum(shares) - shares
        remaining.append(np.maximum(1.0 - (before - before[starts[owner]]), 0.0) * total[owner])
    is_below = np.isfinite(ratio) & (np.where(np.isfinite(ratio), ratio, 0.0) * remaining[1] < (1.0 - _TIE) * remaining[0])
    position = np.arange(owner.size)
    stops = position[~is_below]
    # Once an item stays, all later ones of its owner stay, and those of the same ratio.
    first = np.concatenate([stops, [owner.size]])[np.searchsorted(stops, starts[owner])]
    has_stop = first < (starts + np.bincount(owner, minlength=starts.size))[owner]
    least = np.where(has_stop, ratio[np.minimum(first, owner.size - 1)], np.inf)
    stays: NDArray[np.bool_] = has_stop & (ratio >= least)
    return stays


def _find_last_arrivals(flows: Flows, rank: Indices) -> Indices:
    """Return, by location, the rank of the step after which nothing arrives there; a greater one means that tuples still do."""
    last = np.full(rank.size, rank.size + 1, dtype=np.int64)
    for members, arriving in flows.levels:
        last[members] = -1
        flowing = arriving.values > 0
        columns = arriving.columns[flowing]
        np.maximum.at(last, members[arriving.rows[flowing]], np.minimum(last[columns], rank[columns]))
    return last
