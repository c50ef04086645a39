"""LAS (Rivetti et al.), figure 11, on Spark: the simple application.

Tweets that mention media, politicians or others, at 5, 1 or 0.2 ms per mention: a fifth of the paper's times, so that a
run has more rows. A tenth of the accounts is media, three tenths are politicians; the cost of a tweet is the sum over its
mentions. The key is the first mention, so it predicts the cost only in part. The tweets are those of the Higgs data set
where ``PENSTOCK_DATA`` has it, from its busiest hours, sped up; otherwise one to three mentions, Zipf-1.0 over 5,000
accounts. Arms as in figure 10, and random shedding by the learnt cost, at 0% under-provisioning as in the paper and at
25%, each after some seconds at half of the capacity for learning. Ours and random shedding run three times at 25%, in
turn; their rows are the medians. Briefly: LAS, ours and random shedding at 25%, since shorter runs of all arms decide
nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.csv

from benchmarks.support.las_spark import TARGET_S, Arm, Arrivals, LoadJob, paper_arms
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.simulation.las_queue import zipf_at
from penstock.simulation.plotting import by_panel, lines
from penstock.spark.fresh_session import fresh_session

__all__ = ["plot", "run"]

_ENTITIES, _CORES = 5_000, 2
_COSTS_S, _SHARES = (5e-3, 1e-3, 0.2e-3), (0.1, 0.3, 0.6)
_ROUNDS = 3
"""Of the two arms that are compared."""
_BUSY_S = 276_780
"""Where the busiest twelve hours of the Higgs data begin."""


def run(*, quick: bool, say: Say) -> Result:
    """Run the arms on the same rows, at both provisionings."""
    seconds, warm_s = (25.0, 8.0) if quick else (40.0, 10.0)
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    with fresh_session("las-11", _CORES) as (spark, scratch):
        job = LoadJob(spark, scratch)
        mean_s = float(_draw_rows(20_000, 1.0).costs_s.mean())
        capacity = job.capacity(mean_s)
        say(f"capacity {capacity:,.0f} rows/s of {mean_s * 1e3:.2f} ms, {'generated' if _trace_path() is None else 'Higgs'}")
        for under in (0.25,) if quick else (0.0, 0.25):
            count = round(capacity * (0.5 * warm_s + seconds / (1.0 - under)))
            arrivals = _begin_slowly(_draw_rows(count, 1.0), warm_s, seconds, under)
            arms = [*paper_arms(float(arrivals.costs_s.mean())), Arm("random", {"how": "uniform"})]
            if quick:
                arms = [arm for arm in arms if arm.name in {"LAS", "ours", "random"}]
            elif under:
                arms.append(Arm("ours, by root", {"how": "root"}))
            pair = [arm for arm in arms if arm.name in {"ours", "random"}]
            by_arm: dict[str, list[Row]] = {}
            for arm in [*arms, *(pair * (_ROUNDS - 1) if under else [])]:
                say(f"{arm.name} at {under:.0%}")
                one = job.run(arm, arrivals, warm_s + seconds)
                by_arm.setdefault(arm.name, []).append(one.row(warm_s))
                if quick or not under:
                    curves |= {f"{arm.name}|{what}": one.curve(what) for what in ("delay, s", "dropped, %")}
            rows += [{"under-provisioning": f"{under:.0%}"} | _median(found) for found in by_arm.values()]
    return Result("las-11", rows, bars=_bars(rows), claims=_claims(rows), lines=curves)


def _median(found: list[Row]) -> dict[str, Any]:
    """Return the medians of several runs of an arm, and how many they are."""
    values = {name: median(float(row[name] or 0.0) for row in found) for name in found[0] if name != "shedder"}
    return {"shedder": found[0]["shedder"], "runs": len(found)} | values


def _bars(rows: list[Row]) -> list[Bar]:
    kept, delay_s = _column(rows, "25%", "rows kept"), _column(rows, "25%", "mean delay s")
    bars = [
        Bar.at_least("rows kept by ours relative to random shedding at 25%", kept["ours"] / max(1.0, kept["random"]), 1.2),
        Bar.at_most("its mean delay relative to random shedding at 25%", delay_s["ours"] / delay_s["random"], 1.1),
    ]
    if free := _column(rows, "0%", "rows kept"):
        relative = free["ours"] / max(1.0, free["random"])
        bars.append(Bar.at_least("rows kept by ours relative to random shedding at 0%", relative, 1.0))
    return bars


def _claims(rows: list[Row]) -> list[Claim]:
    delay_s, dropped = _column(rows, "0%", "mean delay s"), _column(rows, "0%", "dropped %")
    if not delay_s:
        return []
    return [
        Claim(
            "LAS is extremely close to Full Knowledge",
            "yes",
            f"{delay_s['LAS']:.2f} s against {delay_s['Full Knowledge']:.2f} s",
            abs(delay_s["LAS"] / delay_s["Full Knowledge"] - 1.0) < 0.1,
        ),
        Claim(
            "LAS and Full Knowledge drop 5 to 10%",
            "yes",
            f"{dropped['LAS']:.1f}% and {dropped['Full Knowledge']:.1f}%",
            all(5.0 <= dropped[name] <= 10.0 for name in ("LAS", "Full Knowledge")),
        ),
        Claim(
            "Straw-Man is at least ten times as late as LAS",
            "an order of magnitude",
            f"{delay_s['Straw-Man']:.2f} s against {delay_s['LAS']:.2f} s",
            delay_s["Straw-Man"] >= 10.0 * delay_s["LAS"],
        ),
        Claim(
            "ours drops fewer than LAS at no more delay",
            "",
            f"{dropped['ours']:.1f}% and {delay_s['ours']:.2f} s against {dropped['LAS']:.1f}% and {delay_s['LAS']:.2f} s",
            dropped["ours"] < dropped["LAS"] and delay_s["ours"] <= delay_s["LAS"],
        ),
    ]


def _column(rows: list[Row], under: str, name: str) -> dict[str, float]:
    return {str(row["shedder"]): float(row[name] or 0.0) for row in rows if row["under-provisioning"] == under}


def _trace_path() -> Path | None:
    path = Path(os.environ.get("PENSTOCK_DATA", "")) / "higgs_twitter_activity.csv.gz"
    return path if "PENSTOCK_DATA" in os.environ and path.is_file() else None


def _draw_rows(count: int, seconds: float) -> Arrivals:
    """Return so many tweets over some seconds."""
    rng = np.random.default_rng(2)
    path = _trace_path()
    if path is None:
        mentions = zipf_at(rng.random(3 * count), _ENTITIES).reshape(count, 3)
        costs_s = np.where(np.arange(3) < rng.integers(1, 4, count)[:, None], _cost_by_account(_ENTITIES)[mentions], 0.0)
        return Arrivals(np.sort(rng.random(count)) * seconds, mentions[:, 0], costs_s.sum(axis=1))
    table = pyarrow.csv.read_csv(path)
    t, source, account, kind = (table.column(name).to_numpy(zero_copy_only=False) for name in ("t", "src", "dst", "type"))
    chosen = np.flatnonzero((kind == "MT") & (t >= _BUSY_S))
    # One author in one second: one tweet, with all that it mentions.
    starts = np.flatnonzero(np.r_[True, (np.diff(t[chosen]) != 0) | (np.diff(source[chosen]) != 0)])
    costs_s = np.add.reduceat(_cost_by_account(int(account.max()) + 1)[account[chosen]], starts)
    if starts.size < count:
        raise ValueError(f"the trace has {starts.size:,} tweets from there on, and {count:,} are needed")
    first = chosen[starts[:count]]
    # Times are whole seconds: spread within them, then sped up.
    times = np.sort(t[first] - t[first[0]] + rng.random(count))
    return Arrivals(times * (seconds / (times[-1] + 1e-9)), account[first].astype(np.int64), costs_s[:count])


def _begin_slowly(arrivals: Arrivals, warm_s: float, seconds: float, under: float) -> Arrivals:
    """Play the first rows at half of the capacity, for learning, then the others so that they are under-provisioned."""
    first = round(arrivals.t.size * 0.5 * warm_s / (0.5 * warm_s + seconds / (1.0 - under)))
    t = arrivals.t
    slow = warm_s * (t[:first] - t[0]) / (t[first] - t[0])
    fast = warm_s + seconds * (t[first:] - t[first]) / (t[-1] - t[first] + 1e-9)
    return Arrivals(np.concatenate([slow, fast]), arrivals.keys, arrivals.costs_s)


def _cost_by_account(accounts: int) -> np.ndarray:
    return np.random.default_rng(11).choice(_COSTS_S, accounts, p=_SHARES)


def plot(result: Result, path: Path) -> None:
    """Draw delay and drops of the arms over time."""
    lines(by_panel(result.lines), path, title="Figure 11 on Spark: tweets by what they mention", target=TARGET_S)
