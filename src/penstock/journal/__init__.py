"""Exact memory: what was decided before it took effect, and what every batch did. Nothing here knows Spark."""
