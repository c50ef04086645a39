"""What differs between the versions of Spark: one file for each version that changed something, and the choice between them.

``newest.py`` is how the newest version does it. Each older version is a class of its own that says what it does otherwise, and
inherits the rest from the next newer one. Internals that are alike in all of them stay where they are used.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spark.versions.newest import Internals
from penstock.spark.versions.spark35 import Spark35
from penstock.spark.versions.spark40 import Spark40
from penstock.spark.versions.spark41 import Spark41

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Internals", "TESTED", "find_internals", "internals_of", "minor_version"]

log = logging.getLogger("penstock")

_BY_VERSION: dict[tuple[int, int], type[Internals]] = {
    (3, 5): Spark35,
    (4, 0): Spark40,
    (4, 1): Spark41,
    (4, 2): Internals,
    (4, 3): Internals,
}
TESTED = tuple(f"{major}.{minor}" for major, minor in _BY_VERSION)
"""The versions that the tests run on (``make test-matrix``)."""


def internals_of(spark: SparkSession) -> Internals:
    """Return how the Spark of a session does what it does in a way of its own."""
    return find_internals(spark.version)


@lru_cache
def find_internals(version: str) -> Internals:
    """Return how a version of Spark does it; of one that was never tested, as the nearest older one that was.

    Raises
    ------
    PenstockError
        If the version is older than all that were tested.

    Examples
    --------
    >>> type(find_internals("4.0.5")).__name__
    'Spark40'
    >>> find_internals("3.4.4")
    Traceback (most recent call last):
    ...
    penstock.errors.PenstockError: Penstock needs Spark 3.5 or later, and this is Spark 3.4.4
    """
    number = minor_version(version)
    older = [known for known in _BY_VERSION if known <= number]
    if not older:
        raise PenstockError(f"Penstock needs Spark {TESTED[0]} or later, and this is Spark {version}")
    if number not in _BY_VERSION:
        log.warning(
            "Spark %s was never tested with Penstock (tested: %s); it is treated as Spark %d.%d",
            version,
            ", ".join(TESTED),
            *max(older),
        )
    return _BY_VERSION[max(older)]()


def minor_version(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version.

    >>> minor_version("4.4.0-SNAPSHOT")
    (4, 4)
    """
    major, minor = version.split(".")[:2]
    return int(major), int("".join(digit for digit in minor if digit.isdigit()))
