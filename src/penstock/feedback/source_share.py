"""Which share of their rows producers should send, from what a gate keeps of those that arrive."""

from __future__ import annotations

from penstock.errors import PenstockError

__all__ = ["SourceShare"]

_IDLE = 3.0


class SourceShare:
    """Moves the sampling from the gate to the source, step by step.

    What arrives is the share ``s`` of what is made. If the gate keeps ``k`` of that, the job takes ``s * k`` of what is made,
    so this is what producers should send; a little more, ``s * k / 0.95``, so that the gate sees when there is room again.
    While it keeps nearly all, the share grows by a quarter at a time. After every change it waits until rows that were made
    afterwards have come through.

    Producers that don't listen make no difference to its logic: it needs no rate of theirs, and the gate sheds what is too much.

    Parameters
    ----------
    settle_s
        How long a change takes until it is seen at the gate.
    floor
        The least share.

    Examples
    --------
    >>> share = SourceShare()
    >>> share.update(offered=1000, kept=475, now_s=0.0)
    0.5
    >>> share.update(offered=1000, kept=475, now_s=2.0)  # these rows were made before
    0.5
    """

    target = 0.95
    """What the gate is to keep of what arrives."""
    slack = 0.1
    """How far below the target it may be before the share is lowered."""
    growth = 1.25

    def __init__(self, settle_s: float = 10.0, floor: float = 0.01) -> None:
        if not settle_s > 0:
            raise PenstockError(f"settle_s must be positive, got {settle_s!r}")
        if not 0 < floor <= 1:
            raise PenstockError(f"floor must lie in (0, 1], got {floor!r}")
        self._settle_s, self._floor = settle_s, floor
        self._offered = self._kept = 0
        self._changed_s: float | None = None
        self._seen_s: float | None = None
        self.share = 1.0

    def update(self, offered: int, kept: int, now_s: float) -> float:
        """Take what came through the gate since the last call, and return the share to send.

        Nothing at all may mean that nothing is made, or that the job is stuck in a long batch. So the share grows only after a
        while without rows.
        """
        if offered or self._seen_s is None or now_s < self._seen_s:
            self._seen_s = now_s
        if self._changed_s is not None and 0.0 <= now_s - self._changed_s < self._settle_s:
            return self.share
        self._offered += offered
        self._kept += kept
        if not self._offered and (self.share == 1.0 or now_s - self._seen_s < _IDLE * self._settle_s):
            return self.share
        keep = self._kept / self._offered if self._offered else 1.0
        share = self.share
        if keep < self.target * (1.0 - self.slack):
            share = max(self._floor, share * keep / self.target)
        elif keep >= self.target:
            share = min(1.0, share * self.growth)
        self._offered = self._kept = 0
        if share != self.share:
            self._changed_s = now_s
        self.share = share
        return share
