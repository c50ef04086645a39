"""What operators cost and let through, from what a running network shows."""

from __future__ import annotations

from penstock.estimate.statistics import CostModel, Estimate, SelectivityEstimator

__all__ = ["CostModel", "Estimate", "SelectivityEstimator"]
