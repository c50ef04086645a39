"""The demo's report: one HTML file without external parts."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

from penstock.demo.summary import Demo

__all__ = ["render_page"]

_CSS = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1f2937; background: #f8fafc; margin: 0; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
p { max-width: 46rem; margin: .5rem 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: 1rem; margin: 1.5rem 0; }
.card { background: #fff; border: 1px solid #e5e7eb; border-radius: .6rem; padding: .9rem 1.1rem; }
.card b { display: block; font-size: 1.6rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.card span { color: #6b7280; font-size: .9rem; }
.alone { color: #c2410c; } .with { color: #0f766e; }
figure { margin: 0; background: #fff; border: 1px solid #e5e7eb; border-radius: .6rem; padding: .75rem; }
figure img { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; background: #fff; border: 1px solid #e5e7eb; border-radius: .6rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .9rem; text-align: right; border-bottom: 1px solid #e5e7eb; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr:last-child td { border-bottom: 0; }
thead th { color: #6b7280; font-weight: 600; }
li { margin: .25rem 0; max-width: 46rem; }
"""


def render_page(demo: Demo, png: bytes) -> str:
    """Return the report as HTML."""
    # Longer than a screen because the page is one piece of text.
    settings = demo.settings
    alone, shed = demo.summaries
    cards = "".join(
        f'<div class="card"><b class="{kind}">{value}</b><span>{html.escape(what)}</span></div>'
        for kind, value, what in (
            ("alone", f"{alone.mean_delay_s:.1f} s", f"mean delay, {alone.label}"),
            ("with", f"{shed.mean_delay_s:.1f} s", f"mean delay, {shed.label}"),
            ("", f"{settings.target_s:g} s", "delay target"),
            ("with", f"{shed.kept / max(1, shed.arrived):.0%}", "of the rows kept, by a hash of the row"),
        )
    )
    headings = ["", *(summary.label for summary in demo.summaries)]
    ledger = [
        (s.label, [f"{s.batches:,}", *(f"{rows:,}" for rows in (s.kept + s.shed, s.kept, s.shed, s.queued, s.arrived))])
        for s in demo.summaries
    ]
    image = base64.b64encode(png).decode()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penstock demo</title>
<style>{_CSS}</style>
</head>
<body>
<main>
<h1>A Spark job under a burst, without and with shedding</h1>
<p>The same job on the same {settings.seconds:g} seconds of bursty traffic, at {settings.overload:g} times what it can process
on this machine. Spark alone falls further behind for as long as the overload lasts. Penstock drops part of the input and holds
the delay.</p>
<div class="cards">{cards}</div>
<figure><img alt="Arrival rate and capacity, delay of both arms with the target, and the share kept, over time"
src="data:image/png;base64,{image}"></figure>
<h2>Result</h2>
{_render_table(headings, demo.table)}
<h2>Ledger</h2>
{_render_table(["", "batches", "offered", "kept", "shed", "queued at the end", "arrived"], ledger)}
<p>In every batch and in total, offered = kept + shed. Arrived = offered + queued at the end.</p>
<h2>How it was measured</h2>
<ul>
<li>The job: {"a Kafka topic" if settings.source == "kafka" else "a replay source"}, a gate, a Python function that takes
{demo.row_cost_s * 1e3:.2f} ms of one core per row (rounds of SHA-256), a count by key and 5-second window,
a sink in the driver. Spark runs in local mode with two cores.</li>
<li>Capacity: {demo.capacity_rows_per_s:,.0f} rows/s, measured at the start with the same job and input that never runs out, as
the best of several batches of about {settings.target_s:g} s. A batch with almost no rows takes {demo.overhead_s * 1e3:,.0f} ms.
Every batch pays this overhead: short batches keep the delay low but leave less of each second for rows.</li>
<li>Both arms run with a Penstock shedder, so that they are measured in the same way. In the first arm the controller keeps every
row, so Spark behaves as it would alone; the second arm has the default controller.</li>
<li>The delay of a batch is its end minus the mean arrival time of the rows that it kept. Means and percentiles are weighted by
rows. The violation is the delay above the target.</li>
<li>Rows that were still queued when the time was up count with their age at that moment. Their true delay is longer.</li>
</ul>
</main>
</body>
</html>
"""


def _render_table(headings: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    head = "".join(f"<th>{html.escape(text)}</th>" for text in headings)
    body = "".join(
        f"<tr><td>{html.escape(name)}</td>{''.join(f'<td>{html.escape(value)}</td>' for value in values)}</tr>"
        for name, values in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
