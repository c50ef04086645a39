"""Parse query networks written in YAML. Error messages name the line.

.. code-block:: yaml

    nodes:     {A: {capacity: 1.0}, B: {capacity: 1.0}}
    inputs:    {i1: {max_rate: 1.0}, i2: {max_rate: 1.0}}
    operators:
      a1: {node: A, from: i1, cost: 1, selectivity: 1.0}
      j:  {kind: join,  node: B, from: [a1, i2], cost: 1, selectivity: 0.01, windows: [100, 50]}
    outputs:   {q1: {from: j, weight: 1}}
    links:     {a1->j: {bandwidth: 500}}
    clusters:  {west: [A, B]}

Windows with a unit, such as ``[10s, 5s]``, are in time; without a unit they are in tuples. ``drop`` of an aggregate or a join
says what is dropped whole before it: ``rows``, ``keys`` or ``windows``. ``clusters`` are nodes that D-FIT plans for as one. To
run the network on Spark, say in the same file what its parts read, do and write: ``format`` and ``options`` for an input or an
output; ``where``, ``select``, ``group`` and ``agg``, ``on`` and ``how``, ``busy``, or ``function`` for an operator. ``transport``
says what carries rows between nodes: ``directory``, or ``{kind: kafka, servers: ...}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.network.builder import NetworkBuilder
from penstock.network.garbage import pause_collector
from penstock.network.model import Drop, Kind, Network
from penstock.network.transport_settings import TransportSettings, read_transport
from penstock.network.yaml_nodes import compose_yaml

__all__ = ["load_network", "parse_network"]

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "node": ("capacity",),
    "input": ("max_rate", "floor"),
    "operator": ("node", "from", "cost", "selectivity", "kind", "windows", "drop"),
    "output": ("from", "weight", "floor"),
    "link": ("bandwidth",),
}
_EXAMPLES: Mapping[str, str] = {
    "nodes": "capacity: 1.0",
    "inputs": "max_rate: 100",
    "operators": "node: A, from: i1, cost: 0.001",
    "outputs": "from: a1, weight: 1",
    "links": "bandwidth: 100",
}
_TRANSPORT = "transport"
_SECTIONS = (*_EXAMPLES, "clusters", _TRANSPORT)
# What a part reads, does or writes when the network runs; planners ignore it.
_WORK: Mapping[str, tuple[str, ...]] = {
    "node": (),
    "input": ("format", "options", "schema", "arrival", "watermark"),
    "operator": ("where", "select", "group", "agg", "on", "how", "busy", "function"),
    "output": ("format", "options", "path"),
    "link": ("max_batches", "max_rows"),
}


def load_network(path: str | Path) -> Network:
    """Read a network from a YAML file.

    Raises
    ------
    PenstockError
        If the file cannot be read or is not a valid network. The message names the file and the line.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PenstockError(f"{path}: the network can't be read: {reason}") from error
    try:
        return parse_network(text, path.stem)
    except PenstockError as error:
        raise PenstockError(f"{path}: {error}") from error


def parse_network(text: str, name: str = "network") -> Network:
    """Read a network from YAML text. Its topics in Kafka, if it has any, are named after ``name`` unless the text names them.

    Raises
    ------
    PenstockError
        If the text is not a valid network. The message names the line.

    Examples
    --------
    >>> network = parse_network('''
    ... nodes: {A: {capacity: 1.0}}
    ... inputs: {i: {max_rate: 10}}
    ... operators:
    ...   a: {node: A, from: i, cost: 0.5}
    ... outputs: {q: {from: a}}
    ... ''')
    >>> network.operators["a"].cost
    0.5
    >>> parse_network("nodes: {A: {capacity: none}}")
    Traceback (most recent call last):
    penstock.errors.PenstockError: line 1: node 'A': capacity must be a number, got 'none'
    """
    with pause_collector():
        return _read_network(text, name)


def _read_network(text: str, network_name: str) -> Network:
    try:
        root = compose_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        prefix = f"line {mark.line + 1}: " if mark is not None else ""
        raise PenstockError(f"{prefix}not YAML: {getattr(error, 'problem', None) or error}") from error
    if not isinstance(root, yaml.MappingNode):
        raise PenstockError(f"not a network: expected the sections {', '.join(_SECTIONS)}")
    builder = NetworkBuilder()
    sections = _read_sections(root)
    for key, value in root.value:
        if key.value == _TRANSPORT:
            builder.transport(_read_transport(value, network_name))
    for name, values in _members(sections, "nodes"):
        fields = _Fields("node", name, values)
        builder.node(name, fields.number("capacity", 1.0), line=fields.line)
    for name, values in _members(sections, "inputs"):
        fields = _Fields("input", name, values)
        options = {key: fields.number(key) for key in ("max_rate", "floor") if fields.has(key)}
        builder.input(name, **options, line=fields.line, does=fields.work())
    for name, values in _members(sections, "operators"):
        _add_operator(builder, _Fields("operator", name, values), name)
    for name, values in _members(sections, "outputs"):
        fields = _Fields("output", name, values)
        options = {key: fields.number(key) for key in ("weight", "floor") if fields.has(key)}
        builder.output(name, fields.text("from"), **options, line=fields.line, does=fields.work())
    for name, values in _members(sections, "links"):
        _add_link(builder, _Fields("link", name, values), name)
    for name, nodes, line in _read_clusters(sections):
        builder.cluster(name, *nodes, line=line)
    return builder.build()


def _read_clusters(sections: Mapping[str, yaml.MappingNode]) -> Iterator[tuple[str, tuple[str, ...], int]]:
    lines: dict[str, int] = {}
    for key, value in sections["clusters"].value if "clusters" in sections else ():
        if not isinstance(key, yaml.ScalarNode):
            raise PenstockError(f"line {_line(key)}: a name in clusters must be text")
        if key.value in lines:
            raise PenstockError(f"line {_line(key)}: cluster {key.value!r} is already defined in line {lines[key.value]}")
        lines[key.value] = _line(key)
        items = value.value if isinstance(value, yaml.SequenceNode) else ()
        if not items or not all(isinstance(item, yaml.ScalarNode) and item.value for item in items):
            raise PenstockError(f"line {_line(value)}: cluster {key.value!r} must be a list of nodes, such as [A, B]")
        yield key.value, tuple(item.value for item in items), _line(key)


def _read_transport(node: yaml.Node, network_name: str) -> TransportSettings:
    """Read the section ``transport``: a kind alone, or a mapping."""
    fields: dict[str, object] = {}
    if isinstance(node, yaml.ScalarNode):
        fields["kind"] = node.value
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            pairs = isinstance(value, yaml.MappingNode)
            fields[str(key.value)] = {str(name.value): str(item.value) for name, item in value.value} if pairs else value.value
    else:
        raise PenstockError(f"line {_line(node)}: transport must be a kind, or a mapping such as {{kind: kafka, servers: ...}}")
    try:
        return read_transport(fields, network_name)
    except PenstockError as error:
        raise PenstockError(f"line {_line(node)}: {error}") from error


def _add_link(builder: NetworkBuilder, fields: _Fields, name: str) -> None:
    source, arrow, target = name.partition("->")
    if not arrow:
        raise PenstockError(f"line {fields.line}: link {name!r}: an arc is written 'a1->b1'")
    if fields.has("bandwidth") or not (fields.has("max_batches") or fields.has("max_rows")):
        builder.link(source, target, fields.number("bandwidth"))
    builder.note_work(name, fields.work())


def _add_operator(builder: NetworkBuilder, fields: _Fields, name: str) -> None:
    windows, timed = fields.windows()
    builder.operator(
        name,
        fields.text("node"),
        *fields.texts("from"),
        cost=fields.number("cost"),
        selectivity=fields.number("selectivity", 1.0),
        kind=cast("Kind", fields.text("kind", "map")),
        windows=windows,
        timed=timed,
        drop=cast("Drop", fields.text("drop")) if fields.has("drop") else None,
        line=fields.line,
        does=fields.work(),
    )


def _read_sections(root: yaml.MappingNode) -> dict[str, yaml.MappingNode]:
    sections: dict[str, yaml.MappingNode] = {}
    names: set[str] = set()
    for key, value in root.value:
        if not isinstance(key, yaml.ScalarNode) or key.value not in _SECTIONS:
            raise PenstockError(f"line {_line(key)}: unknown section {_show(key)}; known sections: {', '.join(_SECTIONS)}")
        if key.value in names:
            raise PenstockError(f"line {_line(key)}: section {key.value!r} appears twice")
        names.add(key.value)
        if key.value == _TRANSPORT:
            continue
        if not isinstance(value, yaml.MappingNode):
            raise PenstockError(f"line {_line(value)}: {key.value} must map names to values, such as {{A: {{...}}}}")
        sections[key.value] = value
    return sections


def _members(sections: Mapping[str, yaml.MappingNode], section: str) -> Iterator[tuple[str, yaml.MappingNode]]:
    if section not in sections:
        return
    lines: dict[str, int] = {}
    for key, value in sections[section].value:
        name = key.value
        if not isinstance(key, yaml.ScalarNode):
            raise PenstockError(f"line {_line(key)}: a name in {section} must be text")
        if name in lines:
            raise PenstockError(f"line {_line(key)}: {section[:-1]} {name!r} is already defined in line {lines[name]}")
        lines[name] = _line(key)
        if isinstance(value, yaml.ScalarNode) and value.value in ("", "~", "null"):
            value = yaml.MappingNode("", [], key.start_mark, key.end_mark)  # noqa: PLW2901 - "A:" means "A: {}"
        if not isinstance(value, yaml.MappingNode):
            raise PenstockError(f"line {_line(value)}: {section[:-1]} {name!r} needs fields, such as {{{_EXAMPLES[section]}}}")
        yield name, value


class _Fields:
    """The fields of one part, checked as they are read."""

    def __init__(self, kind: str, name: str, values: yaml.MappingNode) -> None:
        self._part = f"{kind} {name!r}"
        self._kind = kind
        self.line = _line(values)
        self._values: dict[str, yaml.Node] = {}
        for key, value in values.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, "the name of a field must be text")
            known = (*_FIELDS[kind], *_WORK[kind])
            if key.value not in known:
                raise self._error(key, f"has no field {key.value!r}; known fields: {', '.join(known)}")
            if key.value in self._values:
                raise self._error(key, f"has {key.value!r} twice")
            self._values[key.value] = value

    def has(self, key: str) -> bool:
        return key in self._values

    def work(self) -> dict[str, Any]:
        """Return what the part reads, does or writes: text, lists of text, mappings of text."""
        return {key: self._to_plain(key, self._values[key]) for key in _WORK[self._kind] if key in self._values}

    def _to_plain(self, key: str, node: yaml.Node) -> str | tuple[str, ...] | dict[str, str]:
        if isinstance(node, yaml.SequenceNode):
            return tuple(self._read_each(key, node, lambda item: str(item.value)))
        if isinstance(node, yaml.MappingNode):
            if not all(isinstance(part, yaml.ScalarNode) for pair in node.value for part in pair):
                raise self._error(node, f"{key} must map names to single values")
            return {str(name.value): str(value.value) for name, value in node.value}
        return self.text(key)

    def number(self, key: str, default: float | None = None) -> float:
        node = self._get(key, default is None)
        return default if node is None and default is not None else self._read_number(key, node)

    def text(self, key: str, default: str | None = None) -> str:
        node = self._get(key, default is None)
        if node is None and default is not None:
            return default
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            raise self._error(node, f"{key} must be a name, got {_show(node)}")
        return str(node.value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Read one name, or a list of names."""
        node = self._get(key, required=True)
        if isinstance(node, yaml.SequenceNode):
            return tuple(self._read_each(key, node, lambda item: str(item.value)))
        return (self.text(key),)

    def windows(self) -> tuple[tuple[float, float] | None, bool]:
        """Read two windows, and whether they are in seconds."""
        node = self._get("windows", required=False)
        if node is None:
            return None, False
        if not isinstance(node, yaml.SequenceNode) or len(node.value) != 2:
            raise self._error(node, f"windows must be two values, such as [100, 50] or [10s, 5s], got {_show(node)}")
        units = [isinstance(item.value, str) and item.value[-1:].isalpha() for item in node.value]
        if any(units) and not all(units):
            raise self._error(node, "windows must both be in tuples, such as [100, 50], or both in time, such as [10s, 5s]")
        timed = any(units)
        read = self._read_seconds if timed else (lambda item: self._read_number("windows", item))
        left, right = self._read_each("windows", node, read)
        return (left, right), timed

    def _read_seconds(self, node: yaml.Node) -> float:
        try:
            return parse_duration(node.value, "windows")
        except PenstockError as error:
            raise self._error(node, str(error)) from error

    def _read_each(self, key: str, node: yaml.SequenceNode, read: Callable[[yaml.Node], Any]) -> list[Any]:
        for item in node.value:
            if not isinstance(item, yaml.ScalarNode):
                raise self._error(item, f"{key} must be a list of single values")
        return [read(item) for item in node.value]

    def _read_number(self, key: str, node: yaml.Node | None) -> float:
        try:
            if isinstance(node, yaml.ScalarNode):
                return float(node.value.replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            pass
        raise self._error(node, f"{key} must be a number, got {_show(node)}")

    def _get(self, key: str, required: bool) -> yaml.Node | None:
        node = self._values.get(key)
        if node is None and required:
            raise PenstockError(f"line {self.line}: {self._part} has no {key!r}")
        return node

    def _error(self, node: yaml.Node | None, message: str) -> PenstockError:
        return PenstockError(f"line {_line(node) if node is not None else self.line}: {self._part}: {message}")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _show(node: yaml.Node | None) -> str:
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else "a list or a mapping"
