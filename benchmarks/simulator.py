"""How fast the simulators are, on one core.

Two million tuples through the single server under CTRL, with a control period of 0.5 s of simulated time; the operators of a
network of about 1,140 under SEaMLeSS; a million rows through the micro-batch engine under MicroBatch. The best of several runs
counts; compiling is not part of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.support import qn_complex
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from benchmarks.support.timing import one_core
from penstock.control import Ctrl, MicroBatch, Seamless
from penstock.simulation.micro_batch_engine import simulate_micro_batches
from penstock.simulation.operator_network import simulate_network
from penstock.simulation.queue import simulate_queue
from penstock.simulation.traffic import exponential

__all__ = ["run"]


def run(*, quick: bool, say: Say) -> Result:
    """Time the three of them."""
    scale = 0.25 if quick else 1.0
    queue, few, rows = (
        exponential(2000, 1000 * scale, seed=1),
        exponential(361, 60 * scale, seed=1),
        exponential(8000, 125 * scale),
    )
    network = qn_complex.network()

    def server() -> float:
        simulate_queue(queue, Ctrl(2.0, cost_s=0.0006, headroom=1.0), cost_s=0.0006)
        return float(queue.size)

    def operators() -> float:
        controller = Seamless(2.0, cost_s=qn_complex.COST_S, coefficients=qn_complex.coefficients())
        found = simulate_network(few, network, controller)
        # Work done over the mean work of an operator: how often one ran.
        return found.kept * network.input_coefficient / (sum(network.costs_s) / len(network.costs_s))

    def batches() -> float:
        simulate_micro_batches(rows, MicroBatch(2.0), cost_s=0.0003)
        return float(rows.size)

    found: list[Row] = []
    with one_core() as pinned:
        for name, call in (
            ("single server, tuples", server),
            ("network, operator runs", operators),
            ("micro-batches, rows", batches),
        ):
            say(name)
            done = call()  # compiles
            best_s = min(_timed(call) for _ in range(3))
            found.append({"simulator": name, "a second": done / best_s, "one core": "pinned" if pinned else "not pinned"})
    return Result("simulator", found, [Bar.at_least("single server, tuples a second", float(found[0]["a second"] or 0), 2e6)])


def _timed(call: Callable[[], float]) -> float:
    begun_s = time.perf_counter()
    call()
    return time.perf_counter() - begun_s
