"""The result of a benchmark: its rows, the claims it checks and the bars it must clear."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.errors import PenstockError

__all__ = ["Bar", "Claim", "Lines", "Result", "Row"]

Row = Mapping[str, str | float | None]
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Bar:
    """A measured number and the limit that it must stay within."""

    what: str
    value: float
    limit: float
    holds: bool

    @classmethod
    def at_most(cls, what: str, value: float, limit: float) -> Bar:
        """Return a bar that holds if the value is at most the limit.

        >>> Bar.at_most("ms", 5.0, 20.0).holds
        True
        """
        return cls(what, value, limit, value <= limit)

    @classmethod
    def at_least(cls, what: str, value: float, limit: float) -> Bar:
        """Return a bar that holds if the value is at least the limit.

        >>> Bar.at_least("rows/s", 5.0, 20.0).holds
        False
        """
        return cls(what, value, limit, value >= limit)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper or our design says, and what we measured. ``holds`` is ``None`` where there is nothing to decide."""

    what: str
    paper: str
    ours: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run of a benchmark."""

    name: str
    rows: Sequence[Row]
    bars: Sequence[Bar] = ()
    claims: Sequence[Claim] = ()
    lines: Lines = field(default_factory=dict)
    """The curves of its plot, by name: x and y. Not part of the JSON."""

    def __post_init__(self) -> None:
        if not self.rows:
            raise PenstockError(f"benchmark {self.name!r} measured nothing: a result needs at least one row")

    @property
    def holds(self) -> bool:
        """Whether every bar holds."""
        return all(bar.holds for bar in self.bars)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        return {
            "name": self.name,
            "rows": [dict(row) for row in self.rows],
            "claims": [asdict(claim) for claim in self.claims],
            "bars": [asdict(bar) for bar in self.bars],
        }

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [_rows_table(self.name, self.rows)]
        if self.claims:
            parts.append(_claims_table(self.claims))
        if self.bars:
            parts.append(_bars_table(self.bars))
        return Group(*parts)


def _rows_table(name: str, rows: Sequence[Row]) -> Table:
    table = Table(title=name, title_justify="left")
    columns = list(dict.fromkeys(column for row in rows for column in row))
    for column in columns:
        values = [row.get(column) for row in rows]
        table.add_column(column, justify="left" if any(isinstance(value, str) for value in values) else "right")
    for row in rows:
        table.add_row(*(_format(row.get(column)) for column in columns))
    return table


def _claims_table(claims: Sequence[Claim]) -> Table:
    table = Table(title="claims", title_justify="left")
    for column in ("what", "paper", "ours", "holds"):
        table.add_column(column)
    for claim in claims:
        table.add_row(claim.what, claim.paper, claim.ours, _verdict(claim.holds))
    return table


def _bars_table(bars: Sequence[Bar]) -> Table:
    table = Table(title="bars", title_justify="left")
    for column in ("what", "value", "limit", "holds"):
        table.add_column(column, justify="right" if column in ("value", "limit") else "left")
    for bar in bars:
        table.add_row(bar.what, _format(bar.value), _format(bar.limit), _verdict(bar.holds))
    return table


def _format(value: str | float | None) -> str:
    """Format a number with as many digits as are meaningful."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _verdict(holds: bool | None) -> Text:
    if holds is None:
        return Text("-")
    return Text("yes", style="green") if holds else Text("NO", style="bold red")
