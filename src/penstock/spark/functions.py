"""Counts, sums and means over what a gate has kept: estimates with their errors, as native aggregate columns.

A row kept with probability p stands for ``w = 1/p`` rows: the gate's weight column. Sums of ``w * x`` are unbiased (Horvitz and
Thompson), and so is ``w * (w - 1) * x^2`` summed up as their variance. All of it is plain sums, so it streams, merges, and works
in any aggregation, whatever the keeps of batches and classes were.

Rows that share their fate, as all rows of a key or of a window do, are not independent: their variance is that of whole clusters.
Name them with ``cluster``. The sum over clusters of the square of each cluster's total can't be had from plain sums without
grouping by cluster first; but with a random sign for each cluster, the square of the signed sum has just that as its mean, and
the mean over many signs is near it (the sketch of Alon, Matias and Szegedy). One hash of the cluster gives all the signs.

A cluster's keep changes while it lasts. Two of its rows that were kept with p and q > p have the covariance ``(1 - q) / (p q)``,
not the ``sqrt((1 - p) (1 - q)) / (p q)`` that one sign for both gives. On the scale of ``t = log(1 / (1 - p)) / 2`` the missing
factor is ``exp(-|t - t'|)``. So each cluster cuts that scale into cells at random, and has other signs in each: with cells of a
width from a Gamma distribution (shape 2) two points share one with just that probability (Rahimi and Recht's random binning).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from statistics import NormalDist

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.errors import PenstockError

__all__ = ["estimated_avg", "estimated_count", "estimated_sum", "estimated_total"]

_SIGNS = 24  # more make the error surer, and the plan longer, which Spark makes anew in every micro-batch
_SALT = "penstock signs"
_ROUNDING = 1e-14

ColumnOrName = Column | str


def estimated_count(
    *, weight: ColumnOrName, cluster: ColumnOrName | Sequence[ColumnOrName] = (), confidence: float = 0.95
) -> Column:
    """Estimate how many rows there were: a struct of ``estimate``, ``error``, ``lower`` and ``upper``.

    ``error`` is one standard error; the bounds hold with the given confidence. A row without a weight stands for itself.
    """
    z = _quantile(confidence, clustered=_is_clustered(cluster))
    w = _weight(weight)
    estimate = F.coalesce(F.sum(w), F.lit(0.0))
    error = F.coalesce(_error(None, w, cluster), F.lit(0.0))
    # What was kept was there. So many rows are at least this many, and it takes no other sum (Cauchy and Schwarz).
    seen = F.count(F.lit(1)).cast("double") if _is_clustered(cluster) else _square(F.sum(w)) / F.sum(w * w)
    return _struct(estimate, error, z, least=F.coalesce(seen, F.lit(0.0))).alias("count")


def estimated_sum(
    column: ColumnOrName,
    *,
    weight: ColumnOrName,
    cluster: ColumnOrName | Sequence[ColumnOrName] = (),
    confidence: float = 0.95,
) -> Column:
    """Estimate a sum: a struct of ``estimate``, ``error``, ``lower`` and ``upper``.

    Nulls count for nothing, and where all is null so is the sum, as in SQL.
    """
    z = _quantile(confidence, clustered=_is_clustered(cluster))
    value, w = _column(column).cast("double"), _weight(weight)
    estimate = F.sum(w * value)
    found = F.when(estimate.isNotNull(), _struct(estimate, _error(value, w, cluster), z))
    return found.alias(f"sum({_name(column)})")


def estimated_avg(
    column: ColumnOrName,
    *,
    weight: ColumnOrName,
    cluster: ColumnOrName | Sequence[ColumnOrName] = (),
    center: float = 0.0,
    confidence: float = 0.95,
) -> Column:
    """Estimate a mean: a struct of ``estimate``, ``error``, ``lower`` and ``upper``; null where all is null.

    It is a ratio of two estimates, so its error is that of the deviations from it, to the first order: good from some tens of
    rows on. Of values that lie close together and far from zero, such as times since 1970, give a ``center`` near them: the error
    comes from their squares, and without it the digits don't reach. It is then overestimated, never underestimated.
    """
    z = _quantile(confidence, clustered=_is_clustered(cluster))
    if not (isinstance(center, int | float) and math.isfinite(center)):
        raise PenstockError(f"center must be a number near the values, got {center!r}")
    value, w = _column(column).cast("double") - F.lit(float(center)), _weight(weight)
    known = value.isNotNull()
    rows, x = F.when(known, 1.0).otherwise(0.0), F.coalesce(value, F.lit(0.0))
    weights = F.sum(w * rows)
    mean = F.sum(w * x) / weights
    if _is_clustered(cluster):
        root = _root(w)
        squares = [_square(F.sum(sign * root * x) - mean * F.sum(sign * root * rows)) for sign in _signs(cluster, w)]
        variance = _added(squares) / float(len(squares))
    else:
        spread = w * (w - 1.0)
        squares_of_mean = mean * mean * F.sum(spread * rows)
        # Three great numbers of which little is left: at least as much as is lost by rounding.
        variance = F.greatest(
            F.sum(spread * x * x) - 2.0 * mean * F.sum(spread * x) + squares_of_mean, _ROUNDING * squares_of_mean
        )
    error = F.sqrt(F.greatest(variance, F.lit(0.0))) / weights
    found = F.when(weights > 0.0, _struct(mean + F.lit(float(center)), error, z))
    return found.alias(f"avg({_name(column)})")


def estimated_total(estimates: ColumnOrName, *, confidence: float = 0.95) -> Column:
    """Add up estimates of a first aggregation in a second one: counts or sums of groups whose rows share no fate.

    Groups of a row gate share none. Of a key gate they do if a key's rows are in several groups: then the error is too small, and
    one aggregation over all of them with ``cluster`` is right.
    """
    z = _quantile(confidence, clustered=False)
    column = _column(estimates)
    error = F.sqrt(F.sum(column.getField("error") * column.getField("error")))
    return _struct(F.sum(column.getField("estimate")), error, z).alias("total")


def _error(x: Column | None, w: Column, cluster: ColumnOrName | Sequence[ColumnOrName]) -> Column:
    """The standard error of a sum; of a count without ``x``. What is summed up is written for few operations a row."""
    if _is_clustered(cluster):
        root = _root(w) if x is None else _root(w) * x
        squares = [_square(F.sum(sign * root)) for sign in _signs(cluster, w)]
        variance = _added(squares) / float(len(squares))
    elif x is None:
        variance = F.sum(w * w) - F.sum(w)
    else:
        scaled = w * x
        variance = F.sum(scaled * (scaled - x))
    return F.sqrt(F.greatest(variance, F.lit(0.0)))


def _struct(estimate: Column, error: Column, z: float, least: Column | None = None) -> Column:
    lower = estimate - z * error
    return F.struct(
        estimate.alias("estimate"),
        error.alias("error"),
        (lower if least is None else F.greatest(least, lower)).alias("lower"),
        (estimate + z * error).alias("upper"),
    )


def _root(w: Column) -> Column:
    return F.sqrt(w * F.greatest(w - 1.0, F.lit(0.0)))


def _signs(cluster: ColumnOrName | Sequence[ColumnOrName], w: Column) -> list[Column]:
    """Plus or minus one for each cluster and cell of its keeps, many times over: the bits of one hash."""
    columns = [cluster] if isinstance(cluster, str | Column) else list(cluster)
    hashed = F.xxhash64(F.lit(_SALT), *(_column(column) for column in columns))
    one, other, phase = (_part(hashed, place) for place in range(3))
    width = -F.log(one * other)
    place = F.log(1.0 - 1.0 / w) * -0.5
    cell = F.coalesce(F.floor(place / width + phase), F.lit(0))  # no logarithm: the weight is 1, and there is nothing to sign
    bits = F.xxhash64(hashed, cell)
    return [(1.0 - 2.0 * F.shiftrightunsigned(bits, bit).bitwiseAND(F.lit(1)).cast("double")) for bit in range(3, 3 + _SIGNS)]


def _part(hashed: Column, place: int) -> Column:
    """A number in (0, 1) from twenty bits of a hash."""
    bits = F.shiftrightunsigned(hashed, 3 + 20 * place).bitwiseAND(F.lit(2**20 - 1))
    return (bits.cast("double") + 0.5) / 2.0**20


def _quantile(confidence: float, *, clustered: bool) -> float:
    """How many standard errors: of the normal distribution, or of Student's where the error comes from so many signs.

    >>> round(_quantile(0.95, clustered=False), 3), round(_quantile(0.95, clustered=True), 3)
    (1.96, 2.064)
    """
    if not (isinstance(confidence, int | float) and 0.0 < confidence < 1.0):
        raise PenstockError(f"confidence must lie in (0, 1), got {confidence!r}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    if not clustered:
        return z
    # Student's quantile by its expansion in 1/degrees (Fisher and Cornish): good to three digits here.
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
