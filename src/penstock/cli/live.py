"""The live view of the demo: one panel an arm, and how far along it is."""

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
"""What starting and measuring take, about: for the progress bar only."""
_WIDTH = 46


class LiveDemo:
    """Shows the demo while it runs; where there is no terminal, it prints a line a phase."""

    def __init__(self, console: Console, settings: Settings, labels: Sequence[str]) -> None:
        self._console = console
        self._settings = settings
        self._runs: dict[str, tuple[ArmRun | None, float]] = dict.fromkeys(labels, (None, 0.0))
        self._measurements = "one row costs about 0.4 ms of a core; the capacity is being measured"
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(30), TimeElapsedColumn(), console=console)
        self._task = self._bar.add_task("starting", total=_MEASURING_S + len(labels) * settings.seconds)
        self._live = Live(self._view(), console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._live.stop()

    def phase(self, text: str) -> None:
        """Show what happens now."""
        self._bar.update(self._task, description=text)
        if not self._console.is_terminal:
            self._console.print(f"demo: {text}")
        self._show()

    def measured(self, capacity_rows_per_s: float, overhead_s: float) -> None:
        """Show what the machine can do."""
        rate = self._settings.overload * capacity_rows_per_s
        self._measurements = (
            f"capacity {capacity_rows_per_s:,.0f} rows/s, an empty batch {overhead_s * 1e3:,.0f} ms; "
            f"input {rate:,.0f} rows/s on average, in bursts; target {self._settings.target_s:g} s"
        )
        if not self._console.is_terminal:
            self._console.print(f"demo: {self._measurements}")
        self._show()

    def arm(self, run: ArmRun, passed_s: float) -> None:
        """Show how an arm is doing."""
        self._runs[run.label] = (run, passed_s)
        done = sum(passed for _, passed in self._runs.values())
        self._bar.update(self._task, completed=_MEASURING_S + done)
        self._show()

    def _show(self) -> None:
        self._live.update(self._view())

    def _view(self) -> RenderableType:
        panels = [self._panel(label, run, passed_s) for label, (run, passed_s) in self._runs.items()]
        return Group(Text(self._measurements, style="dim"), Columns(panels), self._bar)

    def _panel(self, label: str, run: ArmRun | None, passed_s: float) -> Panel:
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
        delays = [batch.delay_s for batch in run.batches if batch.kept]
        late = last.delay_s > target_s
        grid.add_row("delay", Text(f"{last.delay_s:.2f} s of {target_s:g} s", style="bold red" if late else "bold green"))
        grid.add_row("", sparkline(delays, width=_WIDTH - 16, limit=target_s))
        grid.add_row("keep", f"{run.keep:.1%}")
        grid.add_row("offered", f"{run.offered:,} rows in {len(run.batches)} batches")
        grid.add_row("kept", f"{run.kept:,} ({run.kept / run.offered:.1%})" if run.offered else "0")
        grid.add_row("time", f"{min(passed_s, run.seconds):.0f} of {run.seconds:g} s")
        return Panel(grid, title=label, width=_WIDTH)
