"""What downsampling must never do: lose rows, move a mean out of its range, or hide an extreme."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.downsampling import assign_buckets, break_gaps

times = st.lists(st.floats(0.0, 1e9), min_size=1, max_size=200).map(lambda values: np.array(sorted(values)))
points = st.integers(1, 50)


@st.composite
def series(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    moments = draw(times)
    some = st.floats(-1e6, 1e6) | st.just(float("nan"))
    return moments, np.array([draw(some) for _ in moments]), draw(points)


@given(series())
def test_there_are_at_most_so_many_points_and_none_is_empty(case: tuple[np.ndarray, np.ndarray, int]) -> None:
    moments, _, most = case
    buckets = assign_buckets(moments, most)
    assert 1 <= buckets.count <= most
    assert sorted(set(buckets.index.tolist())) == list(range(buckets.count))
    assert (np.diff(buckets.index) >= 0).all()


@given(series())
def test_sums_and_extremes_survive(case: tuple[np.ndarray, np.ndarray, int]) -> None:
    moments, values, most = case
    buckets = assign_buckets(moments, most)
    known = values[np.isfinite(values)]
    assert np.isclose(buckets.sum(values).sum(), known.sum(), rtol=1e-9, atol=1e-3)
    if len(known):
        assert np.nanmin(buckets.min(values)) == known.min()
        assert np.nanmax(buckets.max(values)) == known.max()


@given(series(), st.booleans())
def test_a_mean_lies_between_its_extremes(case: tuple[np.ndarray, np.ndarray, int], has_weights: bool) -> None:
    moments, values, most = case
    buckets = assign_buckets(moments, most)
    weights = np.abs(np.nan_to_num(values)) if has_weights else None
    mean = buckets.mean(values, weights)
    known = np.isfinite(mean)
    assert (known == np.isfinite(buckets.min(values))).all()
    assert (buckets.min(values)[known] <= mean[known]).all()
    assert (mean[known] <= buckets.max(values)[known]).all()


@given(series())
def test_few_values_are_left_as_they_are(case: tuple[np.ndarray, np.ndarray, int]) -> None:
    moments, values, _ = case
    buckets = assign_buckets(moments, len(moments))
    assert np.array_equal(buckets.mean(values), values, equal_nan=True)
    assert np.array_equal(buckets.last(values), values, equal_nan=True)


@given(times)
def test_gaps_are_within_the_series(moments: np.ndarray) -> None:
    gaps = break_gaps(moments)
    assert gaps == sorted(set(gaps))
    assert all(0 < gap < len(moments) for gap in gaps)
