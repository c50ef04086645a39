"""For tests of your own controllers and planners: a fake engine, and contracts to subclass. Needs no Spark.

Examples
--------
A test of your own controller::

    class TestMine(ControllerContract):
        def new_controller(self, delay_target_s):
            return Mine(delay_target_s)
"""

from __future__ import annotations

from penstock.testing.controllers import ControllerContract
from penstock.testing.fake_engine import FakeBatch, FakeEngine
from penstock.testing.planners import PlannerContract

__all__ = ["ControllerContract", "FakeBatch", "FakeEngine", "PlannerContract"]
