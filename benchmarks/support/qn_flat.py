"""The flat query network of SEaMLeSS (Pham et al.), and the run with a background job that figures 3 and 5 show."""

from __future__ import annotations

from penstock.control import Controller
from penstock.simulation.operator_network import OperatorNetwork, simulate_network
from penstock.simulation.outcome import Outcome
from penstock.simulation.profile import Profile
from penstock.simulation.traffic import step

__all__ = ["CAPACITY", "JOB_START_S", "LENGTH_S", "TARGET_S", "coefficients", "run_with_background_job"]

TARGET_S, CAPACITY, JOB_START_S, LENGTH_S = 2.0, 207.0, 100.0, 400.0


def run_with_background_job(controller: Controller, seed: int) -> Outcome:
    """Run a controller while a background job takes half of the CPU from 100 s on."""
    return simulate_network(
        step(200, LENGTH_S, 350, 10),
        OperatorNetwork.flat(10, 1 / CAPACITY),
        controller,
        headroom=Profile.step(0.99, 0.5, JOB_START_S),
        stop_s=LENGTH_S,
        seed=seed,
    )


def coefficients() -> dict[str, float]:
    """Return the load behind each of the ten queues."""
    return {str(number): value for number, value in enumerate(OperatorNetwork.flat(10, 1 / CAPACITY).coefficients())}
