"""The motivating example of Staying FIT (Tatbul, Çetintemel, Zdonik, VLDB 2007): figure 1's network and the plans of table 1."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.network import Network
from penstock.testing.planners import build_chains

__all__ = ["PLANS", "figure1", "format_rates", "parse_fractions"]

PLANS = (
    (0, (1.0, 1.0), "3", "1/3, 1/3", "4/3", "1/4, 1/4"),
    (1, (1 / 3, 1 / 3), "1", "1/3, 1/3", "4/3", "1/4, 1/4"),
    (2, (1.0, 0.0), "1", "1, 0", "3", "1/3, 0"),
    (3, (0.0, 0.5), "1", "0, 1/2", "1/2", "0, 1/2"),
    (4, (0.2, 0.4), "1", "1/5, 2/5", "1", "1/5, 2/5"),
)
"""Table 1: the plan's number, the reduced rates at A, then A's load and throughput and B's load and throughput as printed."""


def figure1() -> Network:
    """Build the network of figure 1: costs (1, 2) on A and (3, 1) on B, the only whole numbers that fit every row of table 1."""
    return build_chains()


def format_rates(rates: Sequence[float]) -> str:
    """Format rates as table 1 lists them.

    >>> format_rates([0.2, 0.4])
    '0.200, 0.400'
    """
    return ", ".join(f"{rate:.3f}" for rate in rates)


def parse_fractions(text: str) -> list[float]:
    """Read the numbers of a cell of table 1.

    >>> parse_fractions("1/5, 2")
    [0.2, 2.0]
    """
    numbers = []
    for item in text.split(", "):
        numerator, _, denominator = item.partition("/")
        numbers.append(float(numerator) / float(denominator or 1))
    return numbers
