"""``penstock simulate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import app
from tests.unit.cli.helpers import fails, runner


class TestSimulate:
    def test_prints_the_numbers_as_json(self) -> None:
        found = runner.invoke(app, ["simulate", "--cost", "4ms", "--duration", "30s", "--controller", "seamless", "--json"])
        assert found.exit_code == 0
        numbers = json.loads(found.stdout)
        assert set(numbers) >= {"mean_delay_s", "mean_violation_s", "max_violation_s", "loss", "offered", "kept"}
        assert 0 < numbers["kept"] < numbers["offered"]

    @pytest.mark.parametrize("engine", ["queue", "by-batch", "by-arrival"])
    def test_every_engine_on_a_trace_with_a_picture(self, tmp_path: Path, engine: str) -> None:
        trace, picture = tmp_path / "t.csv", tmp_path / "p.png"
        trace.write_text("t\n" + "\n".join(f"{n * 0.002:.3f}" for n in range(5000)))
        arguments = ["--trace", str(trace), "--cost", "0.004", "--delay-target", "2", "--period", "0.5", "--plot", str(picture)]
        found = runner.invoke(app, ["simulate", "--controller", "ctrl", "--engine", engine, *arguments])
        assert found.exit_code == 0, found.output
        assert "mean violation" in found.stdout
        assert picture.read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--controller", "pid"], "unknown controller 'pid': there are aurora, ctrl, keep-all, micro-batch, seamless"),
            (["--controller", "ctrl", "--assume-headroom", "1.5"], "headroom must lie in (0, 1], got 1.5"),
            (["--controller", "keep-all", "--assume-headroom", "0.5"], "controller 'keep-all' has no headroom"),
            (["--engine", "queue"], "--engine queue has no micro-batches"),
            (["--controller", "ctrl", "--max-loss", "2"], "--max-loss belongs to the micro-batch engines"),
            (["--controller", "ctrl", "--noise", "-1"], "--noise belongs to the micro-batch engines"),
            (["--controller", "ctrl", "--clock-step", "-1h"], "--clock-step belongs to the micro-batch engines"),
            (["--clock-step", "-often"], "--clock-step must be a duration"),
            (["--stall-every", "often"], "--stall-every must be a duration"),
            (["--down-for", "-3s"], "--down-for must be"),
            (["--cost", "zero"], "--cost must be a duration"),
            (["--plot", "/nowhere/a.png"], "there is no directory /nowhere"),
            (["--plot", "a.txt"], "must end in .png, .svg or .pdf"),
            (["--headroom", "0"], "--headroom must lie in (0, 1]"),
            (["--speed", "0"], "--speed must be positive"),
            (["--generator", "burst"], "generator must be one of"),
            (["--trace", "missing.csv"], "missing.csv"),
        ],
    )
    def test_bad_input(self, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
        assert message in fails(capsys, "simulate", "--cost", "4ms", *arguments)

    def test_a_trace_without_rows(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("t\n")
        assert "no rows" in fails(capsys, "simulate", "--cost", "4ms", "--trace", str(tmp_path / "t.csv"))
