"""The benchmarks of load-aware shedding: claims that can fail, and results that come from this code and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import las_6, las_7, las_8, las_grid, las_theorem
from benchmarks.support import las_cells, las_runs
from benchmarks.support.las_runs import METHODS, Metrics, MetricsByPoint, Setting, run_settings
from benchmarks.support.results import Claim, Result
from penstock.las.countmin import UniversalHash


def _say(_: str) -> None:
    pass


def _claim(result: Result, words: str) -> Claim:
    (claim,) = [claim for claim in result.claims if words in claim.what]
    return claim


class TestRuns:
    def test_results_come_from_the_code_and_not_from_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Blocks of an earlier run were read from the temporary directory, by the name of their settings."""
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.setattr(las_runs, "_RUNS", 4)
        settings = [Setting(25.0, "25%")]
        for name in ("las-4-4", "las-4"):
            planted = tmp_path / "penstock-las" / name
            planted.mkdir(parents=True)
            (planted / "0.json").write_text(json.dumps([[0, *[1.0] * 10]] * 4))
        before = sorted(tmp_path.rglob("*"))
        answers = iter([1.0, 2.0])
        for value in (1.0, 2.0):
            monkeypatch.setattr(las_runs, "run_one", lambda _setting, _run, value=value: [(value, 10 * value)] * len(METHODS))
            metrics = run_settings(settings, quick=False, say=_say)
            assert metrics["25%", "las"].wait_ms.tolist() == [next(answers)] * 4
        assert sorted(tmp_path.rglob("*")) == before

    def test_threads_and_one_after_the_other_give_the_same(self) -> None:
        settings = [Setting(25.0, "25%"), Setting(50.0, "50%", under=0.5)]
        tasks = [(setting, run) for setting in settings for run in range(6)]
        threads = las_runs.run_on_threads(lambda task: las_runs.run_one(*task), tasks, _say)
        assert threads == [las_runs.run_one(*task) for task in tasks]


def _metrics(settings: list[Setting], las_wait: dict[str, float], las_dropped: dict[str, float]) -> MetricsByPoint:
    """Make up metrics: LAS as given, all others plain."""
    made: MetricsByPoint = {}
    for setting in settings:
        for method in METHODS:
            wait = las_wait.get(setting.label, 1.0) if method == "las" else 5.0
            dropped = las_dropped.get(setting.label, 30.0) if method == "las" else 25.0
            made[setting.label, method] = Metrics(np.array([wait]), np.array([dropped]))
    return made


class TestClaims:
    def test_figure_6_has_the_papers_least_cost(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a least cost in proportion to the largest all points were one run, scaled: the claim could not fail."""
        asked: list[Setting] = []

        def made_up(settings: list[Setting], **_: object) -> MetricsByPoint:
            asked.extend(settings)
            return _metrics(settings, {s.label: s.tau_s * 1e3 * (0.3 if s.w_max_s < 1e-3 else 1.1) for s in settings}, {})

        monkeypatch.setattr(las_6, "run_settings", made_up)
        result = las_6.run(quick=True, say=_say)
        assert {setting.w_min_s for setting in asked} == {0.1e-3}
        assert _claim(result, "LAS behaves the same").holds is False

    @pytest.mark.parametrize(("dropped", "holds"), [(26.0, True), (31.0, False)])
    def test_figure_7_is_about_latency_and_drops(self, dropped: float, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        def made_up(settings: list[Setting], **_: object) -> MetricsByPoint:
            return _metrics(settings, {"uniform": 8.0, "Zipf-3.0": 5.0}, {"uniform": 30.0, "Zipf-3.0": dropped})

        monkeypatch.setattr(las_7, "run_settings", made_up)
        assert _claim(las_7.run(quick=True, say=_say), "LAS improves with skew").holds is holds

    def test_figure_8_begins_at_one(self) -> None:
        assert max(las_8._EPSILONS) == 1.0
        waits = las_runs.run_one(Setting(1.0, "1", epsilon=1.0), 0)
        assert waits[METHODS.index("las")][0] < 3.2

    def test_theorem_4_2_is_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert _claim(las_theorem.run(quick=True, say=_say), "smallest W/F").holds
        build = UniversalHash.of
        monkeypatch.setattr(las_theorem.UniversalHash, "of", lambda rows, _, seed=0: build(rows, 100_000, seed))
        assert las_theorem._share_of_large_minima(np.repeat(np.arange(1.0, 65.0), 64), [1]) > 0.024


class TestGrid:
    def test_arrivals_keep_their_rate(self) -> None:
        """Bursts come on top of the rate; all others have the same length in time."""
        ends = {
            name: float(las_cells.build_stream(name, 1.0, 0.25, 1)[0].arrivals_s[-1])
            for name in las_cells.ARRIVALS
            if name != "phases"
        }
        assert ends["Poisson"] == pytest.approx(ends["even"], rel=0.02)
        assert ends["on-off"] == pytest.approx(ends["even"], rel=0.02)
        assert ends["square 4"] == pytest.approx(ends["even"] * (0.75 + 0.25 / 4), rel=1e-3)
        assert ends["square 16"] == pytest.approx(ends["even"] * (0.75 + 0.25 / 16), rel=1e-3)

    def test_bars_fail_when_a_cell_does(self) -> None:
        good, bad = las_cells.Outcome(0.1, 0.25, 0.3, 0.9, 1.1), las_cells.Outcome(0.3, 0.25, 0.28, 1.2, 1.1)
        cells = {
            las_cells.Cell(1.0, columns, tau, under, "even"): good
            for columns in (54, 544)
            for tau in (1.0,)
            for under in (0.25, 0.5)
        }
        change = {
            las_cells.ChangeCell(name, "ABS", 54, 1.0, 0.25): [las_cells.Recovery(0.5, False, 0.8)] for name in las_cells.CHANGES
        }
        assert all(bar.holds for bar in las_grid._bars(cells, change))
        late = {cell: [las_cells.Recovery(2.5, False, 0.8)] for cell in change}
        failed = [
            bar.what for bar in las_grid._bars(cells | {las_cells.Cell(0.0, 1, 1.0, 0.25, "even"): bad}, late) if not bar.holds
        ]
        assert len(failed) == 4
