"""The live view of the demo: one panel per arm, and its progress."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from penstock.cli.sparkline import sparkline

if TYPE_CHECKING:
    from penstock.demo.summary import ArmRun, Settings

__all__ = ["LiveDemo"]

_MEASURING_S = 30.0
"""Roughly how long it takes to start Spark and to measure the capacity; only the progress bar uses it."""
_WIDTH = 46


class LiveDemo:
    """Shows the demo while it runs; without a terminal it prints one line per phase."""

    def __init__(self, console: Console, settings: Settings, labels: Sequence[str]) -> None:
        self._console = console
        self._settings = settings
        self._runs: dict[str, tuple[ArmRun | None, float]] = dict.fromkeys(labels, (None, 0.0))
        self._heading = "a row costs about 0.4 ms of one core; measuring the capacity"
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(30), TimeElapsedColumn(), console=console)
        self._task = self._bar.add_task("starting", total=_MEASURING_S + len(labels) * settings.seconds)
        self._live = Live(self._render(), console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._live.stop()

    def show_phase(self, text: str) -> None:
        """Show what the demo is doing."""
        self._bar.update(self._task, description=text)
        self._print_without_terminal(text)
        self._refresh()

    def show_capacity(self, capacity_rows_per_s: float, overhead_s: float) -> None:
        """Show what the machine can do, and what the demo will ask of it."""
        rows_per_s = self._settings.overload * capacity_rows_per_s
        self._heading = (
            f"capacity {capacity_rows_per_s:,.0f} rows/s, an empty batch takes {overhead_s * 1e3:,.0f} ms; "
            f"input {rows_per_s:,.0f} rows/s on average, in bursts; delay target {self._settings.target_s:g} s"
        )
        self._print_without_terminal(self._heading)
        self._refresh()

    def show_arm(self, run: ArmRun, passed_s: float) -> None:
        """Show how an arm is doing."""
        self._runs[run.label] = (run, passed_s)
        total_s = sum(passed for _, passed in self._runs.values())
        self._bar.update(self._task, completed=_MEASURING_S + total_s)
        self._refresh()

    def _print_without_terminal(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(f"demo: {text}")

    def _refresh(self) -> None:
        self._live.update(self._render())

    def _render(self) -> RenderableType:
        panels = [self._render_arm(label, run, passed_s) for label, (run, passed_s) in self._runs.items()]
        return Group(Text(self._heading, style="dim"), Columns(panels), self._bar)

    def _render_arm(self, label: str, run: ArmRun | None, passed_s: float) -> Panel:
        target_s = self._settings.target_s
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim")
        grid.add_column(justify="left")
        last = run.batches[-1] if run is not None and run.batches else None
        if run is None or last is None:
            grid.add_row("delay", "-")
            grid.add_row("", "waiting" if run is None else "first batch")
            for name in ("keep", "offered", "kept", "time"):
                grid.add_row(name, "-")
            return Panel(grid, title=label, width=_WIDTH)
        delays_s = [batch.delay_s for batch in run.batches if batch.kept]
        style = "bold red" if last.delay_s > target_s else "bold green"
        grid.add_row("delay", Text(f"{last.delay_s:.2f} s, target {target_s:g} s", style=style))
        grid.add_row("", sparkline(delays_s, width=_WIDTH - 16, limit=target_s))
        grid.add_row("keep", f"{run.keep:.1%}")
        grid.add_row("offered", f"{run.offered:,} rows in {len(run.batches)} batches")
        grid.add_row("kept", f"{run.kept:,} ({run.kept / run.offered:.1%})" if run.offered else "0")
        grid.add_row("time", f"{min(passed_s, run.seconds):.0f} of {run.seconds:g} s")
        return Panel(grid, title=label, width=_WIDTH)
