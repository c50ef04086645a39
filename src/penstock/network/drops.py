"""What each gate of a network keeps or drops as a whole, and which gates must decide alike.

Staying FIT (Tatbul, Cetintemel, Zdonik), section 2: what comes out of a network that sheds must be part of what would come out
otherwise. Before a windowed aggregate, whole windows are dropped. Before a join, whole keys are, and the same on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.network.lineage import Untraceable, Window, equal_columns, find_window, grouped_columns, is_stateful
from penstock.network.model import Drop, Network, Operator
from penstock.network.regions import Entry, GateId, Layer, QueryIndex, Region

__all__ = ["Drops", "GateUnit", "Ties", "derive_drops"]


@dataclass(frozen=True, slots=True)
class GateUnit:
    """What one gate keeps or drops as a whole."""

    kind: Drop = "rows"
    columns: tuple[str, ...] = ()
    """The columns of the key at the gate."""
    window: Window | None = None
    """The windows, with the name of the time column at the gate."""
    group: str = ""
    """Gates of one group take the same decisions."""
    is_open: bool = False
    """Whether it drops nothing, because it could only drop a part of what must stay whole."""

    def describe(self) -> str:
        """Return the unit in a few words.

        >>> GateUnit("windows", window=Window("arrival", 5_000_000, 5_000_000)).describe()
        'whole windows of arrival, 5 s'
        """
        if self.is_open:
            return "nothing"
        if self.window is not None:
            return f"whole windows of {self.window.time}, {self.window.length / 1e6:g} s"
        return f"whole keys by {', '.join(self.columns)}" if self.kind == "keys" and self.columns else f"{self.kind}"


@dataclass(frozen=True, slots=True)
class Ties:
    """What a plan must respect so that units stay whole."""

    groups: tuple[tuple[str, ...], ...] = ()
    """Drop locations that share one keep."""
    fixed: frozenset[str] = frozenset()
    """Drop locations where nothing is dropped."""

    def __bool__(self) -> bool:
        return bool(self.groups or self.fixed)


@dataclass(frozen=True, slots=True)
class Drops:
    """The units of all gates. A gate that is missing drops rows."""

    units: Mapping[GateId, GateUnit] = field(default_factory=dict)
    ties: Ties = field(default_factory=Ties)
    notes: tuple[str, ...] = ()
    """Which answers may be partial, and why; one line each."""

    def at(self, node: str) -> dict[str, GateUnit]:
        """Return the units of a node's gates, by name."""
        return {gate.name: unit for gate, unit in self.units.items() if gate.node == node}

    def ties_at(self, node: str) -> Ties:
        """Return what a node that plans for itself must respect."""
        units = self.at(node)
        groups: dict[str, list[str]] = {}
        for name, unit in units.items():
            if unit.group and not unit.is_open:
                groups.setdefault(unit.group, []).append(name)
        tied = tuple(tuple(names) for names in groups.values() if len(names) > 1)
        return Ties(tied, frozenset(name for name, unit in units.items() if unit.is_open))


@dataclass(slots=True)
class _Demand:
    """What one operator with state asks of the gates before it."""

    operator: Operator
    kind: Drop
    layers: tuple[Layer, ...]
    columns: dict[GateId, tuple[str, ...]]
    window: Window | None = None

    @property
    def is_strict(self) -> bool:
        """Whether it is an error if it can't be met."""
        return self.operator.drop is not None or self.operator.timed


def derive_drops(network: Network) -> Drops:
    """Return what each gate keeps or drops as a whole, from what the operators behind it do.

    Raises
    ------
    PenstockError
        If what an operator asks for with ``drop`` can't be done, or a join with windows in seconds can't be shed by key.

    Examples
    --------
    >>> from penstock.network import parse_network
    >>> network = parse_network('''
    ... nodes: {A: }
    ... inputs: {i: }
    ... operators: {n: {kind: aggregate, node: A, from: i, cost: 1, group: ["window(t, '5 seconds')"], agg: [count(*)]}}
    ... outputs: {q: {from: n}}
    ... ''')
    >>> derive_drops(network).at("A")["i"].describe()
    'whole windows of t, 5 s'
    """
    if not any(_can_ask(network, operator) for operator in network.operators.values()):
        return Drops()
    queries = QueryIndex(network)
    demands, notes = [], []
    for name in network.order:
        if not _can_ask(network, network.operators[name]):
            continue
        region = Region(network, name, queries)
        try:
            demands.append(_ask(region))
        except Untraceable as reason:
            notes.append(_refuse(network.operators[name], str(reason)))
        if "outer" in str(network.work.get(name, {}).get("how", "")):
            notes.append(f"join {name!r} is an outer one: while keeps change, it may show a row without the partner that it has")
        if region.states and region.operator.kind == "aggregate":
            first = region.states[0]
            notes.append(f"aggregate {name!r} reads what {first!r} makes: what is dropped before that may be part of its windows")
    return _Resolution(network, demands, notes).resolve()


def _can_ask(network: Network, operator: Operator) -> bool:
    """Whether an operator with state says what it needs; one that is only planned for may not."""
    if not is_stateful(network, operator.name):
        return False
    if operator.timed and operator.drop == "rows":
        raise _error(
            operator,
            "its windows are in seconds, so with rows dropped on both sides its output is a product of two keeps, which can't "
            "be planned: drop keys, or give its windows in tuples",
        )
    return operator.drop != "rows" and (operator.timed or bool(network.work.get(operator.name)))


def _ask(region: Region) -> _Demand:
    operator = region.operator
    kind = operator.drop or _default_unit(region)
    work = region.network.work.get(operator.name, {})
    if operator.timed and region.states:
        raise Untraceable(f"it reads what {region.states[0]!r} makes, where keys can't be dropped for it")
    if operator.kind == "join":
        if not work:  # only planned for: which columns are the key does not matter
            return _Demand(operator, "keys", region.layers, {entry.gate: () for entry in _entries(region.layers)})
        return _ask_for_keys(region, [dict(zip(operator.sources, pair, strict=True)) for pair in equal_columns(work)])
    if kind == "keys":
        return _ask_for_keys(region, [dict.fromkeys(operator.sources, name) for name in grouped_columns(work)])
    window = find_window(work)
    for layer in region.layers:
        names = ", ".join(repr(entry.gate.name) for entry in layer.entries)
        if layer.name == "inputs" and not layer.is_together:
            raise Untraceable(
                f"its rows enter at {names}, which no single query reads, so they can't decide alike about a window"
            )
        if layer.name == "inputs" and not layer.is_complete:
            raise Untraceable(f"its rows enter at {names} and also come from {region.states[0]!r}")
    columns = _trace(region, dict.fromkeys(operator.sources, window.time))
    return _Demand(operator, "windows", region.layers, columns, window)


def _default_unit(region: Region) -> Drop:
    """Windows before an aggregate that has some, else its groups; keys before a join."""
    if region.operator.kind == "join":
        return "keys"
    work = region.network.work.get(region.operator.name, {})
    has_sessions = any("session_window" in str(text) for text in work.get("group", ()))
    return "keys" if has_sessions else "windows"


def _ask_for_keys(region: Region, keys: list[dict[str, str]]) -> _Demand:
    """Take the columns of the key that are known at all gates; one is enough to keep the key whole."""
    known, reason = [], None
    for key in keys:
        try:
            known.append(_trace(region, key))
        except Untraceable as error:
            reason = reason or error
    if not known:
        raise reason or Untraceable("its key is not known")
    columns = {gate: tuple(name for names in known for name in names[gate]) for gate in known[0]}
    return _Demand(region.operator, "keys", region.layers, columns)


def _trace(region: Region, column: Mapping[str, str]) -> dict[GateId, tuple[str, ...]]:
    on_arc = region.trace({source: (name,) for source, name in column.items()})
    columns = {}
    for entry in _entries(region.layers):
        names = region.agree(on_arc, entry.source, entry.target)
        if isinstance(names, Untraceable):
            raise Untraceable(f"at gate {entry.gate.name!r} its column is not known: {names}")
        columns[entry.gate] = names
    return columns


def _entries(layers: Iterable[Layer]) -> list[Entry]:
    return [entry for layer in layers for entry in layer.entries]


def _refuse(operator: Operator, reason: str) -> str:
    """Return a note that rows are dropped before an operator, or raise if it asked for something else."""
    unit = "windows" if operator.kind == "aggregate" and operator.drop != "keys" else "keys"
    if operator.timed:
        raise _error(operator, f"its windows are in seconds, so keys must be dropped before it, and that can't be: {reason}")
    if operator.drop is not None:
        raise _error(operator, f"whole {unit} can't be dropped before it: {reason}; drop rows instead")
    harm = "its output falls with the product of two keeps" if operator.kind == "join" else "its answers may be partial"
    return f"{unit} are not dropped whole before {operator.kind} {operator.name!r}, so {harm}: {reason}"


def _error(operator: Operator, message: str) -> PenstockError:
    prefix = f"line {operator.line}: " if operator.line is not None else ""
    return PenstockError(f"{prefix}operator {operator.name!r}: {message}")


class _Resolution:
    """Brings together what several operators ask of the same gates."""

    def __init__(self, network: Network, demands: list[_Demand], notes: list[str]) -> None:
        self._network, self._demands, self._notes = network, demands, notes

    def resolve(self) -> Drops:
        """Drop demands that contradict others, until all that are left can be met."""
        demands = list(self._demands)
        while True:
            conflict = self._find_conflict(demands)
            if conflict is None:
                break
            loser, reason = conflict
            self._notes.append(_refuse(loser.operator, reason))
            demands.remove(loser)
        groups = self._group(demands)
        return Drops(self._make_units(demands, groups), self._tie(demands, groups), tuple(self._notes))

    def _find_conflict(self, demands: list[_Demand]) -> tuple[_Demand, str] | None:
        """Return a demand that another one rules out, and why."""
        groups = self._group(demands)
        by_group: dict[str, list[_Demand]] = {}
        for demand in demands:
            for name in dict.fromkeys(groups[gate] for gate in demand.columns):
                by_group.setdefault(name, []).append(demand)
        for members in by_group.values():
            for demand in members[1:]:
                for other in members:
                    if other is demand:
                        break
                    if not _are_compatible(demand, other):
                        loser, winner = _choose_loser(demand, other)
                        gates = [gate.name for gate in demand.columns if gate in other.columns]
                        at = f"gate {gates[0]!r}" if gates else "a gate that decides with theirs"
                        return loser, f"{at} also feeds {winner.operator.name!r}, before which other {winner.kind} are dropped"
        return None

    @staticmethod
    def _group(demands: list[_Demand]) -> dict[GateId, str]:
        """Return the name of the group of each gate: gates that must decide alike, for any of the demands."""
        parent: dict[GateId, GateId] = {}

        def find(gate: GateId) -> GateId:
            while parent.setdefault(gate, gate) != gate:
                parent[gate] = gate = parent[parent[gate]]
            return gate

        for demand in demands:
            for layer in demand.layers:
                for entry in layer.entries:
                    one, other = sorted((find(layer.entries[0].gate), find(entry.gate)))
                    parent[other] = one
        return {gate: f"{find(gate).name} on {find(gate).node}" for gate in list(parent)}

    def _make_units(self, demands: list[_Demand], groups: Mapping[GateId, str]) -> dict[GateId, GateUnit]:
        units: dict[GateId, GateUnit] = {}
        open_groups = _find_open(demands, groups)
        longest: dict[str, Window] = {}
        for demand in demands:
            for gate in demand.columns:
                if demand.window is not None:
                    known = longest.get(groups[gate])
                    longest[groups[gate]] = demand.window if known is None or demand.window.holds(known) else known
        for demand in demands:
            for gate, columns in demand.columns.items():
                group, window = groups[gate], longest.get(groups[gate])
                if demand.kind == "windows" and window is not None:
                    window = Window(columns[0], window.length, window.slide, window.offset)
                    units[gate] = GateUnit("windows", window=window, group=group, is_open=group in open_groups)
                else:
                    units[gate] = GateUnit("keys", columns, group=group, is_open=group in open_groups)
        return units

    def _tie(self, demands: list[_Demand], groups: Mapping[GateId, str]) -> Ties:
        """Return what plans must respect: they know inputs and splits, not the gates where rows enter a node."""
        tied: dict[str, dict[str, None]] = {}
        fixed: dict[str, None] = {}
        open_groups = _find_open(demands, groups)
        for demand in demands:
            for layer in demand.layers:
                for entry in layer.entries:
                    if layer.name.startswith("split"):
                        if groups[entry.gate] in open_groups:
                            fixed[entry.gate.name] = None
                        else:
                            tied.setdefault(groups[entry.gate], {})[entry.gate.name] = None
                    elif layer.name == "inputs":
                        if entry.target is not None and len(layer.entries) > 1:  # a copy of an input that feeds several nodes
                            fixed[entry.gate.name] = None
                        tied.setdefault(groups[entry.gate], {})[entry.source] = None
        return Ties(tuple(tuple(names) for names in tied.values() if len(names) > 1), frozenset(fixed))


def _find_open(demands: list[_Demand], groups: Mapping[GateId, str]) -> set[str]:
    """Return the groups that let everything pass: one of their gates must, for one of the demands, and they decide alike."""
    return {
        groups[entry.gate] for demand in demands for layer in demand.layers if _is_open(demand, layer) for entry in layer.entries
    }


def _is_open(demand: _Demand, layer: Layer) -> bool:
    """Whether the gates of a layer must let everything pass: rows reach the operator also on ways without such a gate.

    Keys that are dropped where rows enter a node, on one side of a join only, make it no less true.
    """
    if demand.kind == "windows":
        return not (layer.is_complete and layer.is_together)
    return layer.name.startswith("split") and not layer.is_complete


def _are_compatible(one: _Demand, other: _Demand) -> bool:
    if one.kind != other.kind:
        return False
    if any(one.columns[gate] != other.columns[gate] for gate in one.columns if gate in other.columns):
        return False
    if one.window is None or other.window is None:
        return True
    return one.window.holds(other.window) or other.window.holds(one.window)


def _choose_loser(one: _Demand, other: _Demand) -> tuple[_Demand, _Demand]:
    """Return who gives way, and to whom: who did not ask for it, else an aggregate to a join, else the later one."""
    rank = {False: 0, True: 1}
    by_need = sorted(
        (other, one), key=lambda demand: (rank[demand.is_strict], rank[demand.operator.kind == "join"]), reverse=True
    )
    return by_need[1], by_need[0]
