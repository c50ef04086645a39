"""When and how much to shed. A new controller is one file here and one name below."""

from __future__ import annotations

from penstock.control.aurora import Aurora
from penstock.control.base import Controller, Decision, GateCount, Observation
from penstock.control.keep_all import KeepAll
from penstock.errors import PenstockError

__all__ = ["Aurora", "Controller", "Decision", "GateCount", "KeepAll", "Observation", "controller_named"]


def controller_named(name: str, delay_target_s: float) -> Controller:
    """Return the controller of that name, with its defaults.

    >>> controller_named("keep-all", 2.0).__class__.__name__
    'KeepAll'
    """
    known = {_kebab(kind.__name__): kind for kind in (Aurora, KeepAll)}
    if name not in known:
        raise PenstockError(f"unknown controller {name!r}: there are {', '.join(sorted(known))}")
    return known[name](delay_target_s)


def _kebab(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")
