"""Tells producers how much of what they make is admitted, so that they can sample at the source. Needs no Spark."""

from __future__ import annotations

from penstock.feedback.admitted_rate import AdmittedRate
from penstock.feedback.publisher import Feedback

__all__ = ["AdmittedRate", "Feedback"]
