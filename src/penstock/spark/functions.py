"""Counts, sums and means over the rows that a gate kept: estimates with their errors, as native aggregate columns.

A row kept with probability p stands for ``w = 1/p`` rows; w is the gate's weight column. Sums of ``w * x`` are unbiased (Horvitz
and Thompson), and the sum of ``w * (w - 1) * x^2`` is an unbiased estimate of their variance. These are plain sums, so they
stream, merge and work in any aggregation, whatever the keeps of batches and classes were.

Rows that are kept or dropped together, such as all rows of a key or of a window, are not independent: the variance is that of
whole clusters. Name them with ``cluster``. The variance then needs the sum over clusters of the square of each cluster's total,
which plain sums cannot give without grouping by cluster first. With a random sign for each cluster, however, the expected square
of the signed sum is just that, and the mean over many sets of signs is close to it (the sketch of Alon, Matias and Szegedy). One
hash of the cluster gives all its signs.

A cluster's keep may change while its rows arrive. Two of its rows that were kept with p and q > p have the covariance
``(1 - q) / (p q)``, and not the ``sqrt((1 - p) (1 - q)) / (p q)`` that one sign for both would give. On the scale of
``t = log(1 / (1 - p)) / 2``, the missing factor is ``exp(-|t - t'|)``. So each cluster cuts that scale into random cells and has
different signs in each. With cell widths from a Gamma distribution (shape 2), two points share a cell with just that probability
(the random binning of Rahimi and Recht).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import add
from statistics import NormalDist

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.errors import PenstockError
from penstock.feedback.admitted_rate import WEIGHT_HEADER

__all__ = ["estimated_avg", "estimated_count", "estimated_sum", "estimated_total", "source_weight"]

_SIGNS = 24  # more would make the error more certain, and the plan longer, which Spark builds again for every micro-batch
_SALT = "penstock signs"
_ROUNDING = 1e-14

ColumnOrName = Column | str


def source_weight(headers: ColumnOrName = "headers") -> Column:
    """Return the weight that a row of Kafka got at its source: how many rows it stands for, before any gate.

    A producer that samples (``penstock.feedback.AdmittedRate``) writes it to the header ``penstock-weight``. A row without that
    header stands for itself, and so does one whose weight is no number of at least 1. Weights multiply: behind a gate with
    ``weight_column="w"``, a row stands for ``w * source_weight()`` rows.

    Parameters
    ----------
    headers
        Kafka's headers; read the topic with the option ``includeHeaders``.

    Examples
    --------
    ::

        kept = shedder.gate(clicks, name="clicks", arrival="timestamp", weight_column="w")
        kept = kept.withColumn("w", F.col("w") * pf.source_weight())
    """
    mine = F.filter(_to_column(headers), lambda header: header["key"] == WEIGHT_HEADER)
    weight = F.get(mine, F.size(mine) - 1)["value"].cast("string").try_cast("double")  # the last one, as Kafka's clients do
    is_weight = (weight >= 1.0) & (weight < F.lit(float("inf")))
    return F.when(is_weight, weight).otherwise(F.lit(1.0))


def estimated_count(
    *, weight: ColumnOrName, cluster: ColumnOrName | Sequence[ColumnOrName] = (), confidence: float = 0.95
) -> Column:
    """Estimate how many rows there were before the gate.

    Parameters
    ----------
    weight
        The gate's weight column. A row without a weight stands for itself.
    cluster
        The columns whose values are kept or dropped together: the key columns of a gate with ``WholeKeys``, the window of one
        with ``WholeWindows``. Nothing for a gate of rows.
    confidence
        The probability with which ``lower`` and ``upper`` enclose the true count.

    Returns
    -------
    Column
        A struct of ``estimate``, ``error`` (one standard error), ``lower`` and ``upper``. Over no rows all of them are zero.

    Raises
    ------
    PenstockError
        If ``confidence`` does not lie in (0, 1).

    Examples
    --------
    Behind a gate with ``weight_column="w"``::

        from penstock import functions as pf

        kept.groupBy("host").agg(pf.estimated_count(weight="w").alias("requests"))
        by_user.groupBy("country").agg(pf.estimated_count(weight="w", cluster="user_id"))  # behind WholeKeys("user_id")
    """
    z = _find_quantile(confidence, is_clustered=_has_columns(cluster))
    w = _fill_weight(weight)
    estimate = F.coalesce(F.sum(w), F.lit(0.0))
    error = F.coalesce(_estimate_error(None, w, cluster), F.lit(0.0))
    # There were at least as many rows as were kept. For rows, a lower bound of that number takes no further sum (Cauchy-Schwarz).
    least = F.count(F.lit(1)).cast("double") if _has_columns(cluster) else _square(F.sum(w)) / F.sum(w * w)
    return _build_struct(estimate, error, z, least=F.coalesce(least, F.lit(0.0))).alias("count")


def estimated_sum(
    column: ColumnOrName,
    *,
    weight: ColumnOrName,
    cluster: ColumnOrName | Sequence[ColumnOrName] = (),
    confidence: float = 0.95,
) -> Column:
    """Estimate the sum of a column over all rows before the gate.

    Parameters
    ----------
    column
        What to sum up. As in SQL, nulls are ignored.
    weight
        The gate's weight column. A row without a weight stands for itself.
    cluster
        The columns whose values are kept or dropped together, as in :func:`estimated_count`.
    confidence
        The probability with which ``lower`` and ``upper`` enclose the true sum.

    Returns
    -------
    Column
        A struct of ``estimate``, ``error`` (one standard error), ``lower`` and ``upper``; null if all values are null.

    Raises
    ------
    PenstockError
        If ``confidence`` does not lie in (0, 1).

    Examples
    --------
    Behind a gate with ``weight_column="w"``::

        from penstock import functions as pf

        traffic = kept.groupBy("host").agg(pf.estimated_sum("bytes", weight="w").alias("bytes"))
        traffic.select("host", "bytes.estimate", "bytes.error")
    """
    z = _find_quantile(confidence, is_clustered=_has_columns(cluster))
    value, w = _to_column(column).cast("double"), _fill_weight(weight)
    estimate = F.sum(w * value)
    result = F.when(estimate.isNotNull(), _build_struct(estimate, _estimate_error(value, w, cluster), z))
    return result.alias(f"sum({_get_name(column)})")


def estimated_avg(
    column: ColumnOrName,
    *,
    weight: ColumnOrName,
    cluster: ColumnOrName | Sequence[ColumnOrName] = (),
    center: float = 0.0,
    confidence: float = 0.95,
) -> Column:
    """Estimate the mean of a column over all rows before the gate.

    The mean is a ratio of two estimates. Its error is that of the deviations from it, to first order: good from some tens of rows
    on.

    Parameters
    ----------
    column
        What to average. As in SQL, nulls are ignored.
    weight
        The gate's weight column. A row without a weight stands for itself.
    cluster
        The columns whose values are kept or dropped together, as in :func:`estimated_count`.
    center
        A number near the values, if they lie close together and far from zero, such as seconds since 1970. The error is computed
        from squares; without a center too few digits are left, and the error is overestimated, never underestimated.
    confidence
        The probability with which ``lower`` and ``upper`` enclose the true mean.

    Returns
    -------
    Column
        A struct of ``estimate``, ``error`` (one standard error), ``lower`` and ``upper``; null if all values are null.

    Raises
    ------
    PenstockError
        If ``confidence`` does not lie in (0, 1), or ``center`` is not a finite number.

    Examples
    --------
    Behind a gate with ``weight_column="w"``::

        from penstock import functions as pf

        kept.groupBy("host").agg(
            pf.estimated_avg("bytes", weight="w"),
            pf.estimated_avg("sent_s", weight="w", center=1.7e9),
        )
    """
    z = _find_quantile(confidence, is_clustered=_has_columns(cluster))
    if not (isinstance(center, int | float) and math.isfinite(center)):
        raise PenstockError(f"center must be a number near the values, got {center!r}")
    value, w = _to_column(column).cast("double") - F.lit(float(center)), _fill_weight(weight)
    rows, x = F.when(value.isNotNull(), 1.0).otherwise(0.0), F.coalesce(value, F.lit(0.0))
    weights = F.sum(w * rows)
    mean = F.sum(w * x) / weights
    if _has_columns(cluster):
        root = _root_of_variance(w)
        squares = [_square(F.sum(sign * root * x) - mean * F.sum(sign * root * rows)) for sign in _draw_signs(cluster, w)]
        variance = reduce(add, squares) / float(len(squares))
    else:
        spread = w * (w - 1.0)
        squares_of_mean = mean * mean * F.sum(spread * rows)
        # Three large numbers that nearly cancel: the result is at least what rounding loses.
        variance = F.greatest(
            F.sum(spread * x * x) - 2.0 * mean * F.sum(spread * x) + squares_of_mean, _ROUNDING * squares_of_mean
        )
    error = F.sqrt(F.greatest(variance, F.lit(0.0))) / weights
    result = F.when(weights > 0.0, _build_struct(mean + F.lit(float(center)), error, z))
    return result.alias(f"avg({_get_name(column)})")


def estimated_total(estimates: ColumnOrName, *, confidence: float = 0.95) -> Column:
    """Add up estimated counts or sums of groups, in a second aggregation.

    The groups must be independent: no rows of two groups may be kept or dropped together. Behind a gate of rows they are
    independent. Behind a gate of keys they are not if a key has rows in several groups: the error would be too small. Use one
    aggregation over all of them with ``cluster`` instead.

    Parameters
    ----------
    estimates
        A column of :func:`estimated_count` or :func:`estimated_sum`. Means cannot be added up.
    confidence
        The probability with which ``lower`` and ``upper`` enclose the true total.

    Returns
    -------
    Column
        A struct of ``estimate``, ``error`` (one standard error), ``lower`` and ``upper``.

    Raises
    ------
    PenstockError
        If ``confidence`` does not lie in (0, 1).

    Examples
    --------
    From counts per host to counts per country::

        from penstock import functions as pf

        hosts = kept.groupBy("country", "host").agg(pf.estimated_count(weight="w").alias("requests"))
        hosts.groupBy("country").agg(pf.estimated_total("requests").alias("requests"))
    """
    z = _find_quantile(confidence, is_clustered=False)
    column = _to_column(estimates)
    error = F.sqrt(F.sum(column.getField("error") * column.getField("error")))
    return _build_struct(F.sum(column.getField("estimate")), error, z).alias("total")


def _estimate_error(x: Column | None, w: Column, cluster: ColumnOrName | Sequence[ColumnOrName]) -> Column:
    """Return the standard error of a sum, or of a count without ``x``, written with few operations per row."""
    if _has_columns(cluster):
        root = _root_of_variance(w) if x is None else _root_of_variance(w) * x
        squares = [_square(F.sum(sign * root)) for sign in _draw_signs(cluster, w)]
        variance = reduce(add, squares) / float(len(squares))
    elif x is None:
        variance = F.sum(w * w) - F.sum(w)
    else:
        scaled = w * x
        variance = F.sum(scaled * (scaled - x))
    return F.sqrt(F.greatest(variance, F.lit(0.0)))


def _build_struct(estimate: Column, error: Column, z: float, least: Column | None = None) -> Column:
    lower = estimate - z * error
    return F.struct(
        estimate.alias("estimate"),
        error.alias("error"),
        (lower if least is None else F.greatest(least, lower)).alias("lower"),
        (estimate + z * error).alias("upper"),
    )


def _root_of_variance(w: Column) -> Column:
    return F.sqrt(w * F.greatest(w - 1.0, F.lit(0.0)))


def _draw_signs(cluster: ColumnOrName | Sequence[ColumnOrName], w: Column) -> list[Column]:
    """Return columns of plus or minus one, the same within a cluster and a cell of its keeps: the bits of one hash."""
    columns = [cluster] if isinstance(cluster, str | Column) else list(cluster)
    cluster_hash = F.xxhash64(F.lit(_SALT), *(_to_column(column) for column in columns))
    one, other, phase = (_draw_uniform(cluster_hash, number) for number in range(3))
    width = -F.log(one * other)
    position = F.log(1.0 - 1.0 / w) * -0.5
    cell = F.coalesce(F.floor(position / width + phase), F.lit(0))  # null where the weight is 1, and then the sign is not used
    bits = F.xxhash64(cluster_hash, cell)
    return [(1.0 - 2.0 * F.shiftrightunsigned(bits, bit).bitwiseAND(F.lit(1)).cast("double")) for bit in range(3, 3 + _SIGNS)]


def _draw_uniform(cluster_hash: Column, number: int) -> Column:
    """Return a number in (0, 1) from twenty bits of a hash; there are three."""
    bits = F.shiftrightunsigned(cluster_hash, 3 + 20 * number).bitwiseAND(F.lit(2**20 - 1))
    return (bits.cast("double") + 0.5) / 2.0**20


def _find_quantile(confidence: float, *, is_clustered: bool) -> float:
    """Return how many standard errors the bounds are away.

    By the normal distribution; by Student's with one degree of freedom per sign, where the error is estimated from signs.

    >>> round(_find_quantile(0.95, is_clustered=False), 3), round(_find_quantile(0.95, is_clustered=True), 3)
    (1.96, 2.064)
    """
    if not (isinstance(confidence, int | float) and 0.0 < confidence < 1.0):
        raise PenstockError(f"confidence must lie in (0, 1), got {confidence!r}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    if not is_clustered:
        return z
    # Student's quantile by its expansion in 1/degrees (Fisher and Cornish): good to three digits here.
    n = float(_SIGNS)
    return z + (z**3 + z) / (4.0 * n) + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * n * n)


def _has_columns(cluster: ColumnOrName | Sequence[ColumnOrName]) -> bool:
    return isinstance(cluster, str | Column) or bool(cluster)


def _fill_weight(weight: ColumnOrName) -> Column:
    return F.coalesce(_to_column(weight).cast("double"), F.lit(1.0))


def _to_column(column: ColumnOrName) -> Column:
    if isinstance(column, Column):
        return column
    if isinstance(column, str) and column:
        return F.col(column)
    raise PenstockError(f"a column must be a name or a Column, got {column!r}")


def _get_name(column: ColumnOrName) -> str:
    return column if isinstance(column, str) else "expression"


def _square(column: Column) -> Column:
    return column * column
