"""Where journals and checkpoints lie: one small interface, and what implements it without Spark."""

from __future__ import annotations

from penstock.storage.addresses import open_store
from penstock.storage.lease import Lease, LeaseLostError
from penstock.storage.store import HeldError, Hold, Store

__all__ = ["HeldError", "Hold", "Lease", "LeaseLostError", "Store", "open_store"]
