"""What tasks measure, brought back to the driver by an accumulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from pyspark.accumulators import Accumulator, AccumulatorParam

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["accumulate_readings", "take_reading"]


class _Reading(Protocol):
    def add(self, other: Self) -> None: ...


R = TypeVar("R", bound=_Reading)


class _ReadingParam(AccumulatorParam["R | None"]):
    """Adds up what tasks measured."""

    def zero(self, value: R | None) -> R | None:  # noqa: ARG002 - nothing is nothing
        """Return nothing."""
        return None

    def addInPlace(self, value1: R | None, value2: R | None) -> R | None:  # noqa: N802 - PySpark's name
        """Add one to the other."""
        if value1 is None or value2 is None:
            return value2 if value1 is None else value1
        value1.add(value2)
        return value1


def accumulate_readings(context: SparkContext, kind: type[R]) -> Accumulator[R | None]:  # noqa: ARG001 - names R
    """Return an accumulator to which tasks add what they measure."""
    return context.accumulator(None, _ReadingParam())


def take_reading(readings: Accumulator[R | None]) -> R | None:
    """Return what the tasks have measured since the last call."""
    measured, readings.value = readings.value, None
    return measured
