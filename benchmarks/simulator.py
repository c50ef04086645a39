"""How many tuples per second the simulators run on one core.

Two million tuples through the single server under CTRL, with a control period of 0.5 s of simulated time; the operators
of a network of about 1,140 under SEaMLeSS; a million rows through the micro-batch engine under MicroBatch. The best of
several runs counts; compilation is not included.
"""

from __future__ import annotations

from benchmarks.support import qn_complex
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from benchmarks.support.timing import pin_to_one_core, time_call
from penstock.control import Ctrl, MicroBatch, Seamless
from penstock.simulation.micro_batch_engine import simulate_micro_batches
from penstock.simulation.operator_network import simulate_network
from penstock.simulation.queue import simulate_queue
from penstock.simulation.traffic import exponential

__all__ = ["run"]


def run(*, quick: bool, say: Say) -> Result:
    """Time the three simulators."""
    scale = 0.25 if quick else 1.0
    queue, few, rows = (
        exponential(2000, 1000 * scale, seed=1),
        exponential(361, 60 * scale, seed=1),
        exponential(8000, 125 * scale),
    )
    network = qn_complex.network()

    def run_server() -> float:
        simulate_queue(queue, Ctrl(2.0, cost_s=0.0006, headroom=1.0), cost_s=0.0006)
        return float(queue.size)

    def run_operators() -> float:
        controller = Seamless(2.0, cost_s=qn_complex.COST_S, coefficients=qn_complex.coefficients())
        outcome = simulate_network(few, network, controller)
        # The work divided by the mean work of an operator: how many times operators ran.
        return outcome.kept * network.input_coefficient / (sum(network.costs_s) / len(network.costs_s))

    def run_batches() -> float:
        simulate_micro_batches(rows, MicroBatch(2.0), cost_s=0.0003)
        return float(rows.size)

    rates: list[Row] = []
    with pin_to_one_core() as pinned:
        for name, call in (
            ("single server, tuples", run_server),
            ("network, operator runs", run_operators),
            ("micro-batches, rows", run_batches),
        ):
            say(name)
            done = call()  # compiles
            best_s = min(time_call(call)[1] for _ in range(3))
            rates.append({"simulator": name, "per second": done / best_s, "one core": "pinned" if pinned else "not pinned"})
    return Result("simulator", rates, [Bar.at_least("single server, tuples per second", float(rates[0]["per second"] or 0), 2e6)])
