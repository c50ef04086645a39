"""When to shed, and how much? An observation of the last batch in, a decision for the next one out.

A new controller is one file here and one name below.
"""

from __future__ import annotations

import inspect
from typing import Any

from penstock.control.aurora import Aurora
from penstock.control.base import AgeRule, Controller, Decision, GateCount, Observation
from penstock.control.ctrl import Ctrl
from penstock.control.keep_all import KeepAll
from penstock.control.micro_batch import MicroBatch
from penstock.control.seamless import Seamless
from penstock.errors import PenstockError

__all__ = [
    "AgeRule",
    "Aurora",
    "Controller",
    "Ctrl",
    "Decision",
    "GateCount",
    "KeepAll",
    "MicroBatch",
    "Observation",
    "Seamless",
    "build_controller",
    "controller_named",
]


def controller_named(name: str, delay_target_s: float, **options: Any) -> Controller:
    """Return a new controller by its name.

    Parameters
    ----------
    name
        The class name in lower case with dashes: ``aurora``, ``ctrl``, ``keep-all``, ``micro-batch`` or ``seamless``.
    delay_target_s
        The delay to hold, in seconds.
    options
        Further arguments of the controller.

    Raises
    ------
    PenstockError
        If there is no such controller, or it has no such option.

    Examples
    --------
    >>> controller_named("ctrl", 2.0, headroom=0.9).__class__.__name__
    'Ctrl'
    >>> controller_named("keep-all", 2.0, headroom=0.9)
    Traceback (most recent call last):
    penstock.errors.PenstockError: controller 'keep-all' has no headroom: it has no options
    """
    known = {_kebab(kind.__name__): kind for kind in (Aurora, Ctrl, KeepAll, MicroBatch, Seamless)}
    if name not in known:
        raise PenstockError(f"unknown controller {name!r}: there are {', '.join(sorted(known))}")
    accepted = [option for option in inspect.signature(known[name]).parameters if option != "delay_target_s"]
    for option in options:
        if option not in accepted:
            remedy = f"its options are {', '.join(accepted)}" if accepted else "it has no options"
            raise PenstockError(f"controller {name!r} has no {option}: {remedy}")
    controller: Controller = known[name](delay_target_s, **options)
    return controller


def build_controller(controller: str | Controller, delay_target_s: float, **options: Any) -> Controller:
    """Return a controller that a user gave, or one by its name with the options that a user gave.

    Raises
    ------
    PenstockError
        If it is neither, or if options are given beside a controller that is built already.

    Examples
    --------
    >>> build_controller("micro-batch", 2.0, prefer="fresh").prefer
    'fresh'
    >>> build_controller(KeepAll(2.0), 2.0, prefer="fresh")
    Traceback (most recent call last):
    penstock.errors.PenstockError: prefer belongs to the controller: give it to KeepAll(...) if that has it
    """
    if isinstance(controller, str):
        return controller_named(controller, delay_target_s, **options)
    if not isinstance(controller, Controller):
        raise PenstockError(f"controller must be a name or a Controller, got {controller!r}")
    if options:
        kind = type(controller).__name__
        raise PenstockError(f"{next(iter(options))} belongs to the controller: give it to {kind}(...) if that has it")
    return controller


def _kebab(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")
