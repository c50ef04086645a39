"""What the dashboard shows, in a terminal and as Markdown: one screen per query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.observe.wording import count, seconds, share

__all__ = ["headline", "render_all", "render_query", "to_markdown"]

_NONE = "-"
_MOST_DECISIONS = 8
_BLOCKS = "▁▂▃▄▅▆▇█"


def headline(detail: Mapping[str, Any]) -> str:
    """Return how a query does, in a sentence or two.

    >>> headline({"summary": {"batches": 0, "keep": None}, "decisions": []})
    'no batch yet'
    """
    summary, decisions = detail["summary"], detail["decisions"]
    if not summary["batches"]:
        return "no batch yet"
    keep = decisions[0]["keep"] if decisions else summary["keep"]
    text = "keeps everything" if keep is None or keep >= 0.9995 else f"sheds {share(1.0 - keep)} of the rows"
    return f"{text}: {decisions[0]['reason']}" if decisions else text


def render_query(detail: Mapping[str, Any], curves: Mapping[str, Any], width: int = 60) -> RenderableType:
    """Return one query as a screen of text."""
    summary = detail["summary"]
    parts: list[RenderableType] = [
        Text(f"{detail['name']}   ", style="bold").append(f"{detail['state']}   {detail['location']}", style="not bold dim"),
        Text(headline(detail), style="yellow" if (summary["keep"] or 1.0) < 0.9995 else "green"),
        _tell_totals(summary),
    ]
    limit = summary["reachable_s"] or summary["target_s"]
    target = "" if summary["target_s"] is None else f", target {seconds(summary['target_s'])}"
    parts += _draw_curve("delay", curves["delay"], _show(seconds, summary["delay_s"]) + target, width, limit)
    arrivals = f"{_show(count, summary['arrivals'])} rows/s, capacity {_show(count, summary['capacity'])}"
    parts += _draw_curve("arrivals", curves["arrivals"], arrivals, width, summary["capacity"])
    parts += _draw_curve("keep", curves["keep"], _show(share, summary["keep"]), width, None)
    learnt = f"{_show(seconds, summary['cost_s'])} per row, {_show(seconds, summary['overhead_s'])} per batch"
    parts.append(Text(f"cost      {learnt}; the last batch took {_show(seconds, summary['took_s'])}"))
    if detail["decisions"]:
        parts.append(_tabulate_decisions(detail["decisions"][:_MOST_DECISIONS]))
    if summary["gates"]:
        parts.append(_tabulate_gates(summary["gates"]))
    parts += [Text(f"! {line}", style="yellow") for line in detail["notes"]]
    return Group(*parts)


def render_all(overview: Mapping[str, Any]) -> RenderableType:
    """Return all queries in a table, and the networks in a line each."""
    table = Table("query", "state", "delay", "target", "keep", "offered", "shed", "expired", "batches")
    for column in table.columns[2:]:
        column.justify = "right"
    for query in overview["queries"]:
        limit = query["reachable_s"] or query["target_s"]
        is_late = limit is not None and query["delay_s"] is not None and query["delay_s"] > 1.05 * limit
        table.add_row(
            Text(query["name"]),
            query["state"],
            Text(_show(seconds, query["delay_s"]), style="red" if is_late else ""),
            _show(seconds, query["target_s"]),
            _show(share, query["keep"]),
            *(count(query[name]) for name in ("offered", "shed", "expired", "batches")),
        )
    lines = [
        Text(_tell_node(network, node))
        for network in overview["networks"]
        for node in (network["drawing"] or {}).get("nodes", ())
    ]
    return Group(table, *lines)


def to_markdown(overview: Mapping[str, Any], details: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a report in Markdown."""
    lines = ["# Penstock report", ""]
    names = ("query", "batches", "delay", "target", "offered", "kept", "shed", "expired", "kept %")
    lines += [_to_row(names), _to_row(["---", *["--:"] * (len(names) - 1)])]
    for detail in details.values():
        s = detail["summary"]
        counts = [count(s[name]) for name in ("offered", "kept", "shed", "expired")]
        kept = share(s["kept"] / s["offered"]) if s["offered"] else _NONE
        lines.append(
            _to_row(
                [detail["name"], count(s["batches"]), _show(seconds, s["delay_s"]), _show(seconds, s["target_s"]), *counts, kept]
            )
        )
    for detail in details.values():
        lines += ["", f"## {_escape(detail['name'])}", "", f"It {_escape(headline(detail))}.", ""]
        lines += [_to_row(("gate", "class", "offered", "kept", "shed")), _to_row(["---", "---", "--:", "--:", "--:"])]
        for gate in detail["summary"]["gates"]:
            for name, counted in [("", gate), *((one["name"], one) for one in gate["classes"])]:
                shed = counted["offered"] - counted["kept"]
                lines.append(_to_row([gate["name"], name, count(counted["offered"]), count(counted["kept"]), count(shed)]))
        for one in detail["decisions"][:_MOST_DECISIONS]:
            where = f"batch {one['batch']}" if one["batch"] is not None else f"slot {one['slot']}"
            lines += ([""] if one is detail["decisions"][0] else []) + [
                f"- {where} kept {share(one['keep'])}: {_escape(one['reason'])}"
            ]
        lines += ["", *(f"- note: {_escape(line)}" for line in detail["notes"])] if detail["notes"] else []
    networks = [network for network in overview["networks"] if network["drawing"]]
    for network in networks:
        lines += ["", f"## Network {_escape(network['name'])}", ""]
        lines += [f"- {_escape(_tell_node(network, node))}" for node in network["drawing"]["nodes"]]
    return "\n".join(lines) + "\n"


def _tell_totals(summary: Mapping[str, Any]) -> Text:
    text = (
        f"batches {summary['batches']:,}   offered {summary['offered']:,}   kept {summary['kept']:,}   shed {summary['shed']:,}"
    )
    text += f"   of those expired {summary['expired']:,}" if summary["expired"] else ""
    return Text(text + (f"   kept {summary['kept'] / summary['offered']:.1%}" if summary["offered"] else ""))


def _tell_node(network: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    bottleneck = ", the bottleneck" if network["drawing"]["bottleneck"] == node["name"] else ""
    if node["age_s"] is None:
        return f"node {node['name']}: has not reported yet"
    ignored = sum(node["ignored"].values())
    messages = f", {ignored} messages ignored" if ignored else ""
    load = f"load {_show(share, node['load'])}{bottleneck}"
    return f"node {node['name']}: {load}, {node['reason']}{messages}, reported {seconds(node['age_s'])} ago"


def _draw_curve(name: str, values: Sequence[float | None], note: str, width: int, limit: float | None) -> list[Text]:
    known = [value for value in values if value is not None][-width:]
    if not known:
        return []
    top = max([*known, limit or 0.0, 1e-12])
    line = Text(f"{name:10}")
    for value in known:
        is_above = limit is not None and value > 1.02 * limit
        block = _BLOCKS[min(len(_BLOCKS) - 1, round(max(0.0, value) / top * (len(_BLOCKS) - 1)))]
        line.append(block, style="" if limit is None else "red" if is_above else "green")
    return [line.append(f"  {note}")]


def _tabulate_decisions(decisions: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("decision", "keep", "why")
    table.columns[1].justify = "right"
    for one in decisions:
        where = f"batch {one['batch']}" if one["batch"] is not None else f"slot {one['slot']}"
        table.add_row(where, share(one["keep"]), Text(one["reason"]))
    return table


def _tabulate_gates(gates: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("gate", "offered", "kept", "shed", "expired", "kept in all", "keep now")
    for column in table.columns[1:]:
        column.justify = "right"
    for gate in gates:
        for name, counted in [(gate["name"], gate), *((f"  {one['name']}", one) for one in gate["classes"])]:
            offered, kept = counted["offered"], counted["kept"]
            expired = f"{counted['expired']:,}" if "expired" in counted else ""
            shares = (share(kept / offered) if offered else _NONE, _show(share, counted["keep"]))
            table.add_row(Text(name), f"{offered:,}", f"{kept:,}", f"{offered - kept:,}", expired, *shares)
    return table


def _show(form: Any, value: float | None) -> str:
    return _NONE if value is None else str(form(value))


def _escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>|#" else letter for letter in " ".join(text.split()))


def _to_row(cells: Sequence[str]) -> str:
    marks = all(set(cell) <= set("-:") for cell in cells)
    return f"| {' | '.join(cell if marks else _escape(cell) for cell in cells)} |"
