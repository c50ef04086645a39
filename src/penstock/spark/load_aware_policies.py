"""The policies of ``load_aware``: what stands in front of the user's function, and what its times are good for."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.control import Controller, controller_named
from penstock.control.keep_all import KeepAll
from penstock.drop.shares import WorkReading
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.las.bucket_keeps import BucketKeeps
from penstock.las.knapsack import How
from penstock.las.micro_batch_las import ClockReading, MicroBatchLas
from penstock.las.shedder_state import Bound, TuplePolicy
from penstock.las.work_controller import WorkController
from penstock.spark.catalyst import seeded_hash
from penstock.spark.columns import column_named
from penstock.spark.gates.clock_filter import KEY_SEED
from penstock.spark.gates.specification import Buckets, Clocked, GateSpecification
from penstock.spark.load_aware_worker import BUCKET_COLUMN, BucketTimes, Recorder, SketchTimes
from penstock.spark.readings import accumulate_readings, take_reading

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["AddGate", "ClockPolicy", "KnapsackPolicy", "LoadPolicy", "PolicyName"]

PolicyName = Literal["cost-aware", "las", "straw-man", "full-knowledge"]

_REORDERING = r"^\W*(Aggregate|Join|Repartition\w*|RebalancePartitions|Sort|Deduplicate\w*|Distinct|\w*GroupsWithState\w*) "
"""Nodes of a plan behind which the rows of a partition come in another order when a batch is run again."""
_MOST_BUCKETS = 1_000
"""A decision has 8 KB then, and 20 KB in the journal; a table by arrival has 8 MB at most, which a driver with 1 GB can hold."""


class AddGate(Protocol):
    """Puts a gate on a DataFrame."""

    def __call__(self, df: DataFrame, specification: GateSpecification) -> DataFrame:
        """Return the DataFrame behind the gate."""


class LoadPolicy(ABC):
    """What to shed in front of a function whose cost depends on the row."""

    controller: Controller
    """Says how much of a batch fits, or that it has no say."""

    @abstractmethod
    def gate(self, df: DataFrame, key: Column, specification: GateSpecification, add: AddGate) -> tuple[DataFrame, Recorder]:
        """Return the DataFrame behind a gate, and who takes the times of its rows."""


class KnapsackPolicy(LoadPolicy):
    """Ours: a controller says how much work fits into a batch, and a knapsack over buckets of keys what to keep for that."""

    def __init__(
        self,
        delay_target_s: float,
        *,
        controller: str | Controller = "micro-batch",
        buckets: int | None = None,
        how: How = "threshold",
        floor: float = 0.02,
        is_timed: bool = True,
    ) -> None:
        if how not in get_args(How):
            raise PenstockError(f"how must be one of {', '.join(get_args(How))}, got {how!r}")
        self._buckets = (512 if is_timed else 32) if buckets is None else buckets
        if self._buckets > _MOST_BUCKETS:
            raise PenstockError(
                f"buckets must be at most {_MOST_BUCKETS:,}, got {self._buckets:,}: each decision has a number for each, and by "
                "arrival Spark sends all decisions of the last minutes with every stage"
            )
        self._is_timed = is_timed
        # One bucket more than hashes reach: null's.
        self.model = BucketKeeps(self._buckets + 1, how=how, floor=floor)
        inner = controller_named(controller, delay_target_s) if isinstance(controller, str) else controller
        self._work = WorkController(inner, self.model, is_timed=is_timed)
        self.controller = self._work

    def gate(self, df: DataFrame, key: Column, specification: GateSpecification, add: AddGate) -> tuple[DataFrame, Recorder]:
        """Put a gate with an entry per bucket on the DataFrame."""
        hashed = F.pmod(seeded_hash(df.sparkSession, KEY_SEED, [key]), F.lit(self._buckets)).cast("int")
        bucket = F.when(key.isNull(), F.lit(self._buckets)).otherwise(hashed)
        context = df.sparkSession.sparkContext
        work = accumulate_readings(context, WorkReading)
        buckets = Buckets(BUCKET_COLUMN, self.model, is_counted=not self._is_timed, take_work=partial(take_reading, work))
        gated = add(df.withColumn(BUCKET_COLUMN, bucket), replace(specification, buckets=buckets))
        if self._is_timed:
            self._work.cores = context.defaultParallelism
        return gated, BucketTimes(work, self._buckets + 1)

    def time_only(self, df: DataFrame) -> tuple[DataFrame, Recorder]:
        """Return the DataFrame without a gate, all rows in one bucket."""
        work = accumulate_readings(df.sparkSession.sparkContext, WorkReading)
        return df.withColumn(BUCKET_COLUMN, F.lit(0).cast("int")), BucketTimes(work, self._buckets + 1)


class _ClockController(KeepAll):
    """Has no say in what is kept, but hands a new delay target on to the shedders."""

    def __init__(self, delay_target_s: float, shedders: list[MicroBatchLas], tau_share: float) -> None:
        super().__init__(delay_target_s)
        self._shedders, self._tau_share = shedders, tau_share

    def __deepcopy__(self, memo: dict[int, Any]) -> _ClockController:
        """Return a query's own controller, with the same shedders."""
        return _ClockController(self.delay_target_s, self._shedders, self._tau_share)

    def change_target(self, delay_target_s: float) -> None:
        """Hold another tau from the next batch on, in proportion."""
        super().change_target(delay_target_s)
        for shedder in self._shedders:
            shedder.tau_s = self._tau_share * delay_target_s


class ClockPolicy(LoadPolicy):
    """LAS and its baselines: in front of each partition a shedder that decides row by row."""

    def __init__(
        self,
        policy: TuplePolicy,
        delay_target_s: float,
        *,
        tau: str | float | timedelta | None = None,
        constraint: Bound = "abs",
        cost: str | float | Column | None = None,
        **options: Any,
    ) -> None:
        if constraint not in get_args(Bound):
            raise PenstockError(f"constraint must be one of {', '.join(get_args(Bound))}, got {constraint!r}")
        tau_s = 0.5 * delay_target_s if tau is None else parse_duration(tau, "tau")
        self._cost, mean_s = _check_cost(policy, cost)
        self._new_shedder = partial(MicroBatchLas, policy, constraint, mean_s=mean_s, **options)  # takes tau
        self._new_shedder(tau_s=tau_s)  # raises if an option is wrong
        self._policy = policy
        self.shedders: list[MicroBatchLas] = []
        """One per gate."""
        self._tau_share = tau_s / delay_target_s
        self.controller = _ClockController(delay_target_s, self.shedders, self._tau_share)

    def gate(self, df: DataFrame, key: Column, specification: GateSpecification, add: AddGate) -> tuple[DataFrame, Recorder]:
        """Put a gate that decides row by row on the DataFrame."""
        _check_order(df, self._policy)
        shedder = self._new_shedder(tau_s=self._tau_share * self.controller.delay_target_s)
        readings = accumulate_readings(df.sparkSession.sparkContext, ClockReading)
        clocked = Clocked(key, shedder, readings, self._cost_column(df))
        # Rows are told apart by their place in the partition.
        gated = add(df, replace(specification, identity=None, clocked=clocked))
        self.shedders.append(shedder)
        return gated, SketchTimes(readings, shedder.new_sketch(), shedder.window)

    def _cost_column(self, df: DataFrame) -> Column | None:
        if not isinstance(self._cost, str):
            return self._cost
        if self._cost not in df.columns:
            raise PenstockError(f"load_aware: there is no cost column {self._cost!r}; the columns are {', '.join(df.columns)}")
        return column_named(self._cost)


def _check_cost(policy: TuplePolicy, cost: str | float | Column | None) -> tuple[str | Column | None, float | None]:
    """Return the column of true costs, or the mean cost."""
    if policy == "full-knowledge":
        if not isinstance(cost, str | Column):
            raise PenstockError(
                f"policy 'full-knowledge' needs cost=, a column or an expression with the seconds of each row, got {cost!r}"
            )
        return cost, None
    if policy == "straw-man" and cost is not None:
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not (math.isfinite(cost) and cost >= 0):
            raise PenstockError(f"policy 'straw-man' takes cost= as the mean seconds per row, got {cost!r}")
        return None, float(cost)
    if cost is not None:
        raise PenstockError(f"policy {policy!r} learns what rows cost: leave cost out")
    return None, None


def _check_order(df: DataFrame, policy: str) -> None:
    """Refuse a DataFrame whose rows may come in another order when a batch is run again: other rows would be dropped."""
    plan = df._jdf.queryExecution().analyzed().toString()
    if (node := re.search(_REORDERING, plan, re.MULTILINE)) is not None:
        raise PenstockError(
            f"policy {policy!r} decides on rows in the source's order, and behind {node[1]} a batch run again has another: "
            "put load_aware before it, or use policy='cost-aware'"
        )
