"""Counts, sums and means over what a gate has kept: estimates with their errors, as native aggregate columns.

A row kept with probability p stands for ``w = 1/p`` rows: the gate's weight column. Sums of ``w * x`` are unbiased (Horvitz and
Thompson), and so is ``w * (w - 1) * x^2`` summed up as their variance. All of it is plain sums, so it streams, merges, and works
in any aggregation, whatever the keeps of batches and classes were.

Rows that share their fate, as all rows of a key or of a window do, are not independent: their variance is that of whole clusters.
Name them with ``cluster``. The sum over clusters of the square of each cluster's total can't be had from plain sums without
grouping by cluster first; but with a random sign for each cluster, the square of the signed sum has just that as its mean, and
the mean over many signs is near it (the sketch of Alon, Matias and Szegedy). One hash of the cluster gives all the signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from statistics import NormalDist

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.errors import PenstockError

__all__ = ["avg", "count", "sum", "total"]

_SIGNS = 40
_SALT = "penstock signs"

ColumnOrName = Column | str


def count(weight: ColumnOrName, *, cluster: ColumnOrName | Sequence[ColumnOrName] = (), confidence: float = 0.95) -> Column:
    """Estimate how many rows there were: a struct of ``estimate``, ``error``, ``lower`` and ``upper``.

    ``error`` is one standard error; the bounds hold with the given confidence. A row without a weight stands for itself.
    """
    z = _quantile(confidence, clustered=_is_clustered(cluster))
    found = _estimate(F.lit(1.0), _weight(weight), cluster, z)
    seen = F.count(F.lit(1)).cast("double")  # what was kept was there
    bounded = F.struct(
        found.getField("estimate").alias("estimate"),
        found.getField("error").alias("error"),
        F.greatest(seen, found.getField("lower")).alias("lower"),
        found.getField("upper").alias("upper"),
    )
    return bounded.alias("count")


def sum(  # noqa: A001 - as in SQL
    column: ColumnOrName,
    weight: ColumnOrName,
    *,
    cluster: ColumnOrName | Sequence[ColumnOrName] = (),
    confidence: float = 0.95,
) -> Column:
    """Estimate a sum: a struct of ``estimate``, ``error``, ``lower`` and ``upper``. Nulls count for nothing, as in SQL."""
    z = _quantile(confidence, clustered=_is_clustered(cluster))
    value = _column(column).cast("double")
    return _estimate(F.coalesce(value, F.lit(0.0)), _weight(weight), cluster, z).alias(f"sum({_name(column)})")


def avg(
    column: ColumnOrName,
    weight: ColumnOrName,
    *,
    cluster: ColumnOrName | Sequence[ColumnOrName] = (),
    confidence: float = 0.95,
) -> Column:
    """Estimate a mean: a struct of ``estimate``, ``error``, ``lower`` and ``upper``; null where all is null.

    It is a ratio of two estimates, so its error is that of the deviations from it, to the first order: good from some tens of
    rows on.
    """
    z = _quantile(confidence, clustered=_is_clustered(cluster))
    value, w = _column(column).cast("double"), _weight(weight)
    known = value.isNotNull()
    rows, x = F.when(known, 1.0).otherwise(0.0), F.coalesce(value, F.lit(0.0))
    weights = F.sum(w * rows)
    mean = F.sum(w * x) / weights
    if _is_clustered(cluster):
        signed = _signs(cluster)
        root = F.sqrt(w * (w - 1.0))
        squares = [_square(F.sum(sign * root * x) - mean * F.sum(sign * root * rows)) for sign in signed]
        variance = _added(squares) / float(len(squares))
    else:
        spread = w * (w - 1.0)
        variance = F.sum(spread * x * x) - 2.0 * mean * F.sum(spread * x) + mean * mean * F.sum(spread * rows)
    error = F.sqrt(F.greatest(variance, F.lit(0.0))) / weights
    found = F.when(weights > 0.0, _struct(mean, error, z))
    return found.alias(f"avg({_name(column)})")


def total(estimates: ColumnOrName, *, confidence: float = 0.95) -> Column:
    """Add up estimates of a first aggregation in a second one: counts or sums of groups whose rows share no fate.

    Groups of a row gate share none. Of a key gate they do if a key's rows are in several groups: then the error is too small, and
    one aggregation over all of them with ``cluster`` is right.
    """
    z = _quantile(confidence, clustered=False)
    column = _column(estimates)
    error = F.sqrt(F.sum(column.getField("error") * column.getField("error")))
    return _struct(F.sum(column.getField("estimate")), error, z).alias("total")


def _estimate(x: Column, w: Column, cluster: ColumnOrName | Sequence[ColumnOrName], z: float) -> Column:
    if _is_clustered(cluster):
        root = F.sqrt(w * (w - 1.0)) * x
        squares = [_square(F.sum(sign * root)) for sign in _signs(cluster)]
        variance = _added(squares) / float(len(squares))
    else:
        variance = F.sum(w * (w - 1.0) * x * x)
    return _struct(F.sum(w * x), F.sqrt(F.greatest(variance, F.lit(0.0))), z)


def _struct(estimate: Column, error: Column, z: float) -> Column:
    return F.struct(
        estimate.alias("estimate"),
        error.alias("error"),
        (estimate - z * error).alias("lower"),
        (estimate + z * error).alias("upper"),
    )


def _signs(cluster: ColumnOrName | Sequence[ColumnOrName]) -> list[Column]:
    """Plus or minus one for each cluster, many times over: the bits of one hash."""
    columns = [cluster] if isinstance(cluster, str | Column) else list(cluster)
    hashed = F.xxhash64(F.lit(_SALT), *(_column(column) for column in columns))
    return [(1.0 - 2.0 * F.shiftrightunsigned(hashed, bit).bitwiseAND(F.lit(1)).cast("double")) for bit in range(3, 3 + _SIGNS)]


def _quantile(confidence: float, *, clustered: bool) -> float:
    """How many standard errors: of the normal distribution, or of Student's where the error comes from so many signs.

    >>> round(_quantile(0.95, clustered=False), 3), round(_quantile(0.95, clustered=True), 3)
    (1.96, 2.021)
    """
    if not (isinstance(confidence, int | float) and 0.0 < confidence < 1.0):
        raise PenstockError(f"confidence must lie in (0, 1), got {confidence!r}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    if not clustered:
        return z
    # Student's quantile by its expansion in 1/degrees (Fisher and Cornish): good to four digits here.
    n = float(_SIGNS)
    return z + (z**3 + z) / (4.0 * n) + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * n * n)


def _is_clustered(cluster: ColumnOrName | Sequence[ColumnOrName]) -> bool:
    return isinstance(cluster, str | Column) or bool(cluster)


def _weight(weight: ColumnOrName) -> Column:
    return F.coalesce(_column(weight).cast("double"), F.lit(1.0))


def _column(column: ColumnOrName) -> Column:
    if isinstance(column, Column):
        return column
    if isinstance(column, str) and column:
        return F.col(column)
    raise PenstockError(f"a column must be a name or a Column, got {column!r}")


def _name(column: ColumnOrName) -> str:
    return column if isinstance(column, str) else "expression"


def _square(column: Column) -> Column:
    return column * column


def _added(columns: Sequence[Column]) -> Column:
    return reduce(lambda left, right: left + right, columns)
