"""What does a row cost? Learners that answer from counts and times, while the job runs.

All of them learn ``seconds = overhead + sum of cost * rows``, and have ``update``, ``snapshot`` and ``restore``:

- `BatchFilter`: one kind of row, an answer from the first batch on.
- `BatchRegression`: one kind of row, "unknown" while overhead and cost can't be separated.
- `OperatorCosts`: several operators that are timed together, with errors.
- `BucketCosts`: hundreds of buckets of keys, timed row by row or together.

`LinearFilter` is the algebra behind them and `DiagonalFilter` the same for hundreds of values.
`SelectivityEstimator` answers how many rows an operator passes on, and `Selectivities` the same for many operators.
"""

from __future__ import annotations

from penstock.estimate.batch_filter import BatchFilter
from penstock.estimate.batch_regression import BatchRegression
from penstock.estimate.bucket_costs import BucketCosts
from penstock.estimate.diagonal_filter import DiagonalFilter
from penstock.estimate.estimate import Estimate
from penstock.estimate.linear_filter import LinearFilter
from penstock.estimate.operator_costs import OperatorCosts
from penstock.estimate.selectivities import Selectivities
from penstock.estimate.selectivity import SelectivityEstimator

__all__ = [
    "BatchFilter",
    "BatchRegression",
    "BucketCosts",
    "DiagonalFilter",
    "Estimate",
    "LinearFilter",
    "OperatorCosts",
    "Selectivities",
    "SelectivityEstimator",
]
