"""What Penstock claims, measured. An experiment is one file with a ``run`` here and one line below."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

from benchmarks.results import Result
from penstock.errors import PenstockError

__all__ = ["EXPERIMENTS", "Experiment", "Say", "experiment_named"]

EXPERIMENTS = {
    "gate": "what the gate costs a row, beside rand() and beside a drop in Python",
    "overhead": "what gate, journal and monitor cost a micro-batch that sheds nothing",
    "table": "how long it takes to swap a table of 10,000 entries",
    "replay-source": "how many rows a second the replay source plays on one core",
    "simulator": "how many tuples a second the simulators run on one core",
    "ctrl-6a": "paper 001, figure 6A: open loop against feedback, constant cost",
    "ctrl-6b": "paper 001, figure 6B: open loop against feedback, sinusoidal cost",
    "seamless-3": "paper 002, figure 3: a background job at 100 s",
    "seamless-4": "paper 002, figure 4: response times on a network of 1,140 operators",
    "seamless-table1": "paper 002, table I: violation and loss on that network",
    "seamless-5": "paper 002, figure 5: how often to adjust the headroom",
    "period": "which control period, tried out and advised from the trace",
    "microbatch": "all controllers on a simulated micro-batch engine",
    "spark-controllers": "all controllers and three baselines on Spark",
    "fit-table1": "paper 000, table 1: five plans for two nodes",
    "fit-10a": "paper 000, figure 10(a): Solver against C-FIT over load distributions",
    "fit-10b": "paper 000, figure 10(b): Solver against Solver-W",
    "fit-11a": "paper 000, figure 11(a): Solver-W over the mean rate",
    "fit-11c": "paper 000, figure 11(c): Solver-W over the provision level of a trace",
    "fit-13": "paper 000, figure 13: Solver against C-FIT over operator fan-out",
    "fit-14": "paper 000, figure 14 and table 3: 2, 4 and 8 inputs",
    "fit-15a": "paper 000, figure 15(a): entries of a table over epsilon and load",
    "fit-15b": "paper 000, figure 15(b): what to send after a change of selectivity",
    "fit-15c": "paper 000, figure 15(c): what to send after an operator has moved",
    "fit-exact": "the exact planner at run time against all that plan in advance",
    "network-table1": "paper 000, table 1, on Spark: two applications, five plans, three managers",
    "network-burst": "figure 1 of paper 000 on Spark under a bursty trace: nobody, local, coordinator, D-FIT",
    "network-step": "how soon a step in the input rates shows in the gates, coordinator and D-FIT",
    "network-dfit": "D-FIT on a tree of 1,000 nodes: messages and bytes after one leaf's change",
    "las-theorem": "paper 004, theorem 4.2: what a cell of the sketches is expected to say",
    "las-4": "paper 004, figure 4: load-aware shedding over under-provisioning",
    "las-5": "paper 004, figure 5: over the threshold",
    "las-6": "paper 004, figure 6: over the greatest cost",
    "las-7": "paper 004, figure 7: over the distribution of keys",
    "las-8": "paper 004, figure 8: over the precision of the sketches",
    "las-9": "paper 004, figure 9: abrupt changes, phases A to G",
    "las-10": "paper 004, figure 10, on Spark: the phases as a real job",
    "las-11": "paper 004, figure 11, on Spark: the simple application",
    "las-bias": "whom load-aware shedding hurts, and what weights make of it",
    "las-overhead": "what timing and sketches cost a tuple",
    "answers": "how far off counts, sums and means are after shedding, by unit and loss",
    "answers-join": "what is left of a join after shedding on both sides, by rows and by keys",
    "answers-cost": "what whole windows, whole keys and estimates cost, and what a window gate saves",
    "spark-native": "our controller on Spark with native sinks, where the size of a batch is not known",
}

Say = Callable[[str], None]
"""Where an experiment tells what it is doing."""


class Experiment(Protocol):
    """What a file of an experiment offers; a function ``plot(result, path)`` may come with it."""

    def run(self, *, quick: bool, say: Say) -> Result:
        """Measure and return what came out."""


def experiment_named(name: str) -> Experiment:
    """Return an experiment; it is loaded only now, because most need Spark.

    >>> experiment_named("gait")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    penstock.errors.PenstockError: there is no experiment 'gait'; there are gate, overhead, table, ...
    """
    if name not in EXPERIMENTS:
        raise PenstockError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return cast("Experiment", importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))


def plot_of(name: str) -> Callable[[Result, Path], None] | None:
    """Return the function that draws an experiment, if it has one."""
    return cast("Callable[[Result, Path], None] | None", getattr(experiment_named(name), "plot", None))
