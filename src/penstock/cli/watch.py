"""``penstock watch``: a live view of a journal, the only thing it reads. The job may be running or have ended."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.sparkline import sparkline
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.journal import BatchRecord, JournalState
    from penstock.storage import Store

__all__ = ["watch"]

_BATCHES_SHOWN = 15
_REFRESH_S, _REFRESH_FAR_S = 1.0, 5.0


def watch(
    directory: str = typer.Argument(..., metavar="DIR", help="A journal, or a checkpoint with a journal in it; s3a:// too."),
    as_json: bool = typer.Option(False, "--json", help="Print the last batch as JSON and exit."),
) -> None:
    """Show the rows offered, kept and shed in each batch of a running job, until Ctrl-C."""
    from penstock.journal import read_journal  # noqa: PLC0415 - commands load what they need

    journal = find_journal(directory)
    state = read_journal(journal)
    if as_json:
        typer.echo(json.dumps(describe_last_batch(journal.location, state)))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.print(render(journal.location, state))
        return
    with Live(render(journal.location, state), console=console, auto_refresh=False, screen=False) as live:
        try:
            while True:
                live.update(render(journal.location, read_journal(journal)), refresh=True)
                time.sleep(_REFRESH_FAR_S if journal.is_remote else _REFRESH_S)
        except KeyboardInterrupt:
            return


def find_journal(directory: str) -> Store:
    """Return the journal in a directory, which is the journal itself or a checkpoint."""
    from penstock.journal.files import OWNER, list_numbered  # noqa: PLC0415
    from penstock.storage import open_store  # noqa: PLC0415

    store = open_store(directory, "the journal")
    try:
        if not store.exists():
            raise PenstockError(f"there is no directory {directory}")
        for candidate in (store.below("penstock"), store):
            if OWNER in candidate.list_names() or list_numbered(candidate):
                return candidate
    except OSError as error:
        raise PenstockError(f"{directory} can't be read: {str(error).splitlines()[0]}") from None
    raise PenstockError(
        f"there is no journal in {directory}: give the directory of a journal, or the checkpoint of a job with a shedder"
    )


def describe_last_batch(journal: str, state: JournalState) -> dict[str, object]:
    """Return the newest batch of a journal as plain JSON values."""
    if not state.batches:
        raise PenstockError(f"the journal in {journal} has no batch yet")
    record = state.batches[max(state.batches)]
    return asdict(record) | {"delay_s": record.delay_s}


def render(journal: str, state: JournalState) -> RenderableType:
    """Return what a journal looks like now."""
    records = [record for _, record in sorted(state.batches.items())]
    offered, kept = _sum_counts(state)
    head = Text(f"{journal}   batches {len(records) + state.compacted_batches:,}   ", overflow="fold")
    head.append(f"offered {offered:,}   kept {kept:,}   shed {offered - kept:,}")
    head.append(f"   kept {kept / offered:.1%}" if offered else "")
    delays = [record.delay_s for record in records if record.delay_s is not None]
    parts: list[RenderableType] = [head]
    if delays:
        parts.append(Text("delay  ").append_text(sparkline(delays, width=60)).append(f"  {delays[-1]:.2f} s"))
    keeps = [record.keep for record in records if record.keep is not None]
    if keeps:
        parts.append(Text("keep   ").append_text(sparkline(keeps, width=60)).append(f"  {keeps[-1]:.1%}"))
    parts.append(_tabulate_batches(records[-_BATCHES_SHOWN:]) if records else Text("no batch yet", style="dim"))
    parts += [Text(f"! {line}", style="yellow") for line in (*state.errors, *state.damage)]
    return Group(*parts)


def _sum_counts(state: JournalState) -> tuple[int, int]:
    counts = list(state.totals().values())
    return sum(offered for offered, _ in counts), sum(kept for _, kept in counts)


def _tabulate_batches(records: list[BatchRecord]) -> Table:
    table = Table()
    for name in ("batch", "gate", "offered", "kept", "shed", "keep", "delay", "duration"):
        table.add_column(name, justify="left" if name == "gate" else "right")
    for record in records:
        duration = f"{record.end_s - record.start_s:.2f} s" if record.end_s is not None and record.start_s is not None else "-"
        delay = f"{record.delay_s:.2f} s" if record.delay_s is not None else "-"
        keep = f"{record.keep:.1%}" if record.keep is not None else "-"
        for gate, (offered, kept) in record.gates.items():
            table.add_row(str(record.batch_id), gate, f"{offered:,}", f"{kept:,}", f"{offered - kept:,}", keep, delay, duration)
    return table
