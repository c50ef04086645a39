"""What every controller must do. Subclass the contract in a test of yours, and pytest runs it on your controller.

It holds a controller to its promises on any observations, however odd: it answers with a probability, it keeps no memory outside
of its snapshot, it leaves a light load alone, and under a heavy one it sheds.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace

from penstock.control.base import Controller, GateCount, Observation
from penstock.decision import ByBatch, SlotGate
from penstock.drop.shares import EqualShare
from penstock.errors import PenstockError
from penstock.testing.fake_engine import FakeBatch, FakeEngine

__all__ = ["ControllerContract", "make_observation"]

_NUMBERS = (0.0, -1.0, 1e-308, 1e-9, 0.2, 1.0, 3.5, 1e6, 1e10)
_COUNTS = (0, 1, 2, 500, 10**9)


def make_observation(rng: random.Random, number: int) -> Observation:
    """Return an observation that may hold anything a broken clock or an odd source can bring."""
    offered = rng.choice(_COUNTS)
    start_s = rng.choice((1_000.0 + number, *_NUMBERS))
    return Observation(
        batch_id=number - 1,
        start_s=start_s,
        end_s=start_s + rng.choice(_NUMBERS),
        gates={"in": GateCount(offered, rng.choice((0, offered // 3, offered)))},
        keep=rng.random(),
        busy_s=abs(rng.choice(_NUMBERS)),
        mean_arrival_s=rng.choice((None, start_s, *_NUMBERS)),
        backlog_rows=rng.choice(({}, {"source0": rng.choice(_COUNTS)})),
        upcoming_rows=rng.choice((None, *_COUNTS)),
        completed=rng.choice((None, *_COUNTS)),
        work_s=rng.choice((None, 0.0, 1.0)),
        cold=rng.random() < 0.2,
        waited_s=rng.choice((None, 0.0, 1.0, 1e10)),
        taken_s=rng.choice((None, start_s, *_NUMBERS)),
    )


class ControllerContract:
    """Subclass it as ``class TestMine(ControllerContract)`` and define ``new_controller``."""

    sheds = True
    """Whether it is meant to shed at all; false for a baseline that keeps everything."""

    def new_controller(self, delay_target_s: float) -> Controller:
        """Return a fresh controller with its defaults."""
        raise NotImplementedError("return your controller here")

    def test_a_target_must_be_positive(self) -> None:
        """A target of nothing, or no number, is refused by name."""
        for target in (0.0, -1.0, math.nan, math.inf):
            try:
                self.new_controller(target)
            except PenstockError as error:
                assert "delay_target_s" in str(error), f"the message must name delay_target_s: {error}"
            else:
                raise AssertionError(f"a target of {target} must be refused")

    def test_any_observation_gets_a_probability_or_none(self) -> None:
        """Whatever it is shown, first or later, twice or with a clock that stands still."""
        for observations in _traces():
            controller = self.new_controller(2.0)
            for observation in observations:
                for _ in range(2):  # the same moment twice
                    keep = controller.update(observation).keep
                    assert keep is None or 0.0 <= keep <= 1.0, f"keep {keep} after {observation}"

    def test_restored_it_goes_on_as_if_it_had_never_stopped(self) -> None:
        """Its whole memory is in its snapshot, as plain JSON."""
        for number, observations in enumerate(_traces()):
            whole, first = self.new_controller(2.0), self.new_controller(2.0)
            cut = number % len(observations)
            for observation in observations[:cut]:
                whole.update(observation)
                first.update(observation)
            second = self.new_controller(2.0).restore(json.loads(json.dumps(first.snapshot())))
            for observation in observations[cut:]:
                assert second.update(observation) == whole.update(observation), f"after {observation}"
            assert second.snapshot() == whole.snapshot(), "the memory after it differs"

    def test_a_light_load_is_left_alone(self) -> None:
        """A tenth of the capacity: the last batches must be whole."""
        batches = self._run(rows_per_s=100.0, batches=30)
        assert all(batch.kept == batch.offered for batch in batches[-10:])

    def test_an_overload_is_shed_and_the_delay_comes_down(self) -> None:
        """Five times the capacity: batches must come down to the target, and not to nothing."""
        batches = self._run(rows_per_s=5_000.0, batches=12 if not self.sheds else 80)
        if not self.sheds:
            assert all(batch.kept == batch.offered for batch in batches)
            return
        late = [batch for batch in batches[-20:] if batch.end_s - batch.start_s > 2.0]
        assert not late, f"{len(late)} of the last 20 batches took longer than the target"
        assert sum(batch.kept for batch in batches[-20:]) > 0, "it kept nothing at all"

    def test_it_changes_nothing_that_it_is_shown(self) -> None:
        """An observation is somebody else's."""
        observation = make_observation(random.Random(7), 1)
        before = replace(observation)
        self.new_controller(2.0).update(observation)
        assert observation == before

    def _run(self, *, rows_per_s: float, batches: int) -> list[FakeBatch]:
        """Run an engine of 1 ms per row and 0.2 s per batch; a batch has the rows that came while the one before ran."""
        engine = FakeEngine(lambda: ByBatch([SlotGate("in", EqualShare())], self.new_controller(2.0)), cost_s=0.001)
        rng = random.Random(1)
        done: list[FakeBatch] = []
        for _ in range(batches):
            gathered_s = done[-1].end_s - done[-1].start_s if done else 0.5
            done.append(engine.run_batch(round(rows_per_s * gathered_s * (0.9 + 0.2 * rng.random()))))
        return done


def _traces() -> Iterator[list[Observation]]:
    for seed in range(40):
        rng = random.Random(seed)
        yield [make_observation(rng, number) for number in range(rng.randrange(1, 25))]
