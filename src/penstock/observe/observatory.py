"""All that was named on the command line, read again and again by one reader: queries, and the networks they belong to."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import JournalError, PenstockError
from penstock.journal.places import JournalPlace, find_places, is_run_directory
from penstock.observe.discovery import find_journals, name_apart
from penstock.observe.journal_tail import JournalTail
from penstock.observe.network_view import Parts, draw_network, read_parts
from penstock.observe.views import list_decisions, summarise, trace

__all__ = ["Observatory", "WatchedQuery"]

_SEARCH_S = 5.0
"""How often to look for journals that were not there before."""
_FRESH_S = 15.0
_DECISIONS = 30


@dataclass(slots=True)
class WatchedQuery:
    """One query, as far as its journal was read."""

    id: str
    place: JournalPlace
    tail: JournalTail
    trouble: str | None = None
    has_twin: bool = False
    """Whether another query has the same name."""

    @property
    def label(self) -> str:
        """What its job calls it, if the journal says that."""
        label = self.about.get("label")
        return self.place.name if label is None or self.place.node is not None else str(label)

    @property
    def name(self) -> str:
        """What to call it: as its job does, and where it lies if that is not enough."""
        return f"{self.label} ({self.place.name})" if self.has_twin and self.place.name != self.label else self.label

    @property
    def about(self) -> Mapping[str, Any]:
        """What the job says of the query."""
        about = self.tail.owner.get("about")
        return about if isinstance(about, Mapping) else {}

    @property
    def decider(self) -> str:
        """Who decides."""
        return "the controller" if self.place.node is None else f"the plan in force at node {self.place.node}"

    def notes(self) -> list[str]:
        """Return what a person should know: errors of the job, damage of the journal."""
        own = [] if self.trouble is None else [self.trouble]
        return [*own, *self.tail.series.errors, *self.tail.damage.values()]


@dataclass(slots=True)
class _Network:
    id: str
    root: Path
    drawing: dict[str, Any] | None = None
    parts: Parts | None = None


class Observatory:
    """The queries in some directories. One thread polls; any number may ask.

    Parameters
    ----------
    directories
        Journals, checkpoints, run directories of networks, or directories that hold some.
    now_s
        The clock.
    may_wait
        Whether a directory may hold no journal yet.

    Raises
    ------
    PenstockError
        If a directory does not exist, or holds no journal and may not wait for one.
    """

    def __init__(
        self, directories: Sequence[str | Path], now_s: Callable[[], float] = time.time, *, may_wait: bool = False
    ) -> None:
        self._directories = list(directories)
        self._now_s = now_s
        self._find = find_places if may_wait else find_journals
        self._lock = threading.Lock()
        self.queries: dict[str, WatchedQuery] = {}
        self._networks: dict[str, _Network] = {}
        self._searched_s = -math.inf
        self._search(is_first=True)
        self.poll()

    def _search(self, *, is_first: bool = False) -> bool:
        """Look for journals; those that are new are followed from now on."""
        self._searched_s = self._now_s()
        places: list[JournalPlace] = []
        for directory in self._directories:
            try:
                places += self._find(directory)
            except PenstockError:
                if is_first:
                    raise
            path = Path(str(directory).removeprefix("file:")).absolute()
            if "://" not in str(directory) and is_run_directory(path):
                number = _identify(str(path))
                self._networks.setdefault(number, _Network(number, path))
        before = len(self.queries)
        for place in name_apart(places):
            number = _identify(place.location)
            if number not in self.queries:
                self.queries[number] = WatchedQuery(number, place, JournalTail(place.location, now_s=self._now_s))
        return len(self.queries) != before

    def poll(self) -> tuple[set[str], bool]:
        """Read what is new. Return the queries that changed, and whether anything else did: a new query, a network."""
        with self._lock:
            has_more = self._now_s() - self._searched_s > _SEARCH_S and self._search()
            changed = {number for number, query in self.queries.items() if _poll_query(query)}
            labels = Counter(query.label for query in self.queries.values())
            for query in self.queries.values():
                query.has_twin = labels[query.label] > 1
            redrawn = [self._redraw(network) for network in self._networks.values()]
            has_more |= any(redrawn)
            return changed, has_more

    def _redraw(self, network: _Network) -> bool:
        if network.parts is None:
            description = _read_json(network.root / "network.json")
            try:
                network.parts = None if description is None else read_parts(description)
            except (KeyError, TypeError, ValueError, AttributeError):
                network.parts = None
        if network.parts is None:
            return False
        statuses = {node: _read_json(network.root / "nodes" / node / "status.json") for node in network.parts.nodes}
        known = {node: status for node, status in statuses.items() if status is not None}
        coordinator = _read_json(network.root / "coordinator" / "status.json")
        try:
            drawing = draw_network(network.parts, known, coordinator, self._recent_keeps(network), self._now_s())
        except (KeyError, TypeError, ValueError):
            return False
        is_new = network.drawing is None or _timeless(drawing) != _timeless(network.drawing)
        network.drawing = drawing
        return is_new

    def _recent_keeps(self, network: _Network) -> dict[str, float]:
        """Return the share that each gate of a network kept in its last batches."""
        keeps: dict[str, float] = {}
        for query in self.queries.values():
            if query.place.node is None or network.root not in Path(query.place.location).parents:
                continue
            counts: dict[str, tuple[int, int]] = {}
            for line in list(query.tail.series.recent.values())[-10:]:
                for gate, (offered, kept) in line["gates"].items():
                    total = counts.get(gate, (0, 0))
                    counts[gate] = (total[0] + int(offered), total[1] + int(kept))
            keeps |= {gate: kept / offered for gate, (offered, kept) in counts.items() if offered}
        return keeps

    # -- answers, as plain JSON values -----------------------------------------------------------------------------------

    def overview(self) -> dict[str, Any]:
        """Return all queries, each in a line, and the networks."""
        with self._lock:
            queries = [self._outline(query) for query in self.queries.values()]
            networks = [{"id": n.id, "name": n.root.name, "drawing": n.drawing} for n in self._networks.values()]
        return {"queries": queries, "networks": networks, "now_s": self._now_s()}

    def _outline(self, query: WatchedQuery) -> dict[str, Any]:
        summary = self._summarise(query)
        wanted = ("batches", "last_s", "delay_s", "target_s", "reachable_s", "keep", "shed", "offered", "expired")
        network = next((n.id for n in self._networks.values() if n.root in Path(query.place.location).parents), None)
        return {
            "id": query.id,
            "name": query.name,
            "node": query.place.node,
            "network": network,
            "state": self._judge(query, summary["last_s"]),
            "notes": len(query.notes()),
            **{name: summary[name] for name in wanted},
        }

    def _summarise(self, query: WatchedQuery) -> dict[str, Any]:
        summary = summarise(query.tail.series, query.about.get("classes"))
        if query.place.node is None:
            return summary
        # A node holds no delay: it takes what its plan lets in, at its pace. Costs are learnt by the node for all of its queries.
        nodes = [node for network in self._networks.values() for node in (network.drawing or {}).get("nodes", ())]
        name = query.place.name.removeprefix(f"{query.place.node}: ")
        known = [node.get("queries", {}).get(name) for node in nodes if node["name"] == query.place.node]
        learnt: Mapping[str, Any] = next((found for found in known if found is not None), {})
        now = {"cost_s": learnt.get("cost"), "overhead_s": learnt.get("overhead_s")}
        costs = {name: summary[name] if value is None else value for name, value in now.items()}
        return summary | {"target_s": None, "reachable_s": None, **costs}

    def _judge(self, query: WatchedQuery, last_s: float | None) -> str:
        """Return whether the job seems to run: it holds the journal, or has written to it just now."""
        if query.trouble is not None:
            return "lost"
        if query.tail.is_running or (last_s is not None and self._now_s() - last_s < _FRESH_S):
            return "running"
        return "ended" if last_s is not None else "waiting"

    def detail(self, number: str) -> dict[str, Any]:
        """Return one query with its decisions and notes, without curves."""
        query = self.queries[number]
        with self._lock:
            series = query.tail.series
            summary = self._summarise(query)
            return {
                "id": number,
                "name": query.name,
                "location": query.tail.location,
                "how": query.about.get("how"),
                "controller": query.about.get("controller"),
                "version": series.version,
                "state": self._judge(query, summary["last_s"]),
                "summary": summary,
                "decisions": list_decisions(series, _DECISIONS, query.decider),
                "notes": query.notes(),
            }

    def curves(self, number: str, since_s: float = -math.inf, until_s: float = math.inf, points: int = 600) -> dict[str, Any]:
        """Return the curves of one query."""
        with self._lock:
            query = self.queries[number]
            curves = trace(query.tail.series, since_s, until_s, points, query.about.get("classes"))
            if query.place.node is not None:
                curves["target"] = [None] * len(curves["t"])
            return curves


def _poll_query(query: WatchedQuery) -> bool:
    before = query.trouble
    try:
        is_new = query.tail.poll()
        query.trouble = None
    except (OSError, JournalError) as error:
        query.trouble = f"the journal in {query.tail.location} can't be read: {getattr(error, 'strerror', None) or error}"
        return query.trouble != before
    return is_new or query.trouble != before


def _identify(location: str) -> str:
    """Return a short name for an address: it says nothing of where that is."""
    return hashlib.blake2s(location.encode(), digest_size=5).hexdigest()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _timeless(drawing: Mapping[str, Any]) -> str:
    """Return a drawing without what changes by itself."""
    nodes = [{key: value for key, value in node.items() if key not in ("age_s", "silent_s")} for node in drawing["nodes"]]
    return json.dumps({**drawing, "nodes": nodes}, sort_keys=True, default=str)
