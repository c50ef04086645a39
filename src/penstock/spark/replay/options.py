"""The options of the replay source, parsed and checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.duration import is_zero_duration, parse_duration
from penstock.errors import PenstockError
from penstock.simulation.traffic import Traffic, option_names, traffic_from_options

__all__ = ["KeyOptions", "ReplayOptions", "parse_options"]

_COMMON = ("path", "seed", "speed", "repeat", "skip", "loop", "start", "partitions", "max_rows_per_batch", "max_rows_file")
_KEYS = ("keys", "key_count", "key_exponent")
_GENERATED = ("generator", "cost_classes", "payload_bytes")


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """How keys are drawn."""

    distribution: str = "uniform"
    count: int = 1000
    exponent: float = 1.0


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What to play and how; small, because it travels to the workers."""

    source: Traffic | str
    """A generator, or the path of a trace."""
    seed: int
    speed: float
    repeat: int
    skip_s: float
    loop: bool
    start_s: float | None
    partitions: int
    max_rows: int | None
    max_rows_file: str | None
    keys: KeyOptions
    costs_s: tuple[float, ...]
    payload_bytes: int


def parse_options(options: Mapping[str, str]) -> ReplayOptions:
    """Return the options of a stream, from Spark's strings.

    Parameters
    ----------
    options
        By name, in upper or lower case.

    Raises
    ------
    PenstockError
        If an option is unknown or its value is wrong; the message names both.

    Examples
    --------
    >>> parse_options({"generator": "constant", "rate": "5", "duration": "60s", "skip": "500ms"}).skip_s
    0.5
    """
    text = {name.lower(): value for name, value in options.items()}
    source = _parse_source(text)
    parser = _OptionParser(text)
    costs = [cost for cost in text.get("cost_classes", "").split(",") if cost.strip()]
    return ReplayOptions(
        source=source,
        seed=parser.parse_int("seed", 0, 0),
        speed=parser.parse_float("speed", 1.0),
        repeat=parser.parse_int("repeat", 1, 1, 1_000_000),
        skip_s=_parse_seconds("skip", text.get("skip", "0")),
        loop=parser.parse_flag("loop"),
        start_s=parser.parse_float("start", 0.0, allow_zero=True) if "start" in text else None,
        partitions=parser.parse_int("partitions", 2, 1, 10_000),
        max_rows=parser.parse_int("max_rows_per_batch", 1, 1, 2**53) if "max_rows_per_batch" in text else None,
        max_rows_file=text.get("max_rows_file"),
        keys=KeyOptions(
            distribution=parser.parse_choice("keys", ("uniform", "zipf")),
            count=parser.parse_int("key_count", 1000, 1, 10_000_000),
            exponent=parser.parse_float("key_exponent", 1.0, allow_zero=True),
        ),
        costs_s=tuple(_parse_seconds("cost_classes", cost) for cost in costs) or (0.0,),
        payload_bytes=parser.parse_int("payload_bytes", 16, 0, 1024 * 1024),
    )


def _parse_source(text: Mapping[str, str]) -> Traffic | str:
    """Return what to play, and refuse options that do not go with it."""
    if ("path" in text) == ("generator" in text):
        count = "both" if "path" in text else "neither"
        raise PenstockError(f"penstock-replay needs either the option generator or the option path, got {count}")
    is_generated = "generator" in text
    traffic_options = option_names(text["generator"]) if is_generated else ()
    known = {*_COMMON, *_KEYS, *traffic_options, *(_GENERATED if is_generated else ())}
    for name in text:
        if name not in known:
            source = f"the generator {text['generator']}" if is_generated else "a trace file"
            raise PenstockError(f"unknown option {name}; with {source} there are: {', '.join(sorted(known))}")
    if not is_generated:
        return text["path"]
    return traffic_from_options({name: text[name] for name in ("generator", *traffic_options) if name in text})


def _parse_seconds(name: str, text: str) -> float:
    return 0.0 if is_zero_duration(text) else parse_duration(text, f"option {name}")


class _OptionParser:
    """Parses one option at a time; every error names the option and its value."""

    def __init__(self, text: Mapping[str, str]) -> None:
        self._text = text

    def parse_int(self, name: str, default: int, low: int, high: int = 2**31 - 1) -> int:
        text = self._text.get(name, str(default))
        try:
            value = int(text)
        except ValueError:
            raise PenstockError(f"option {name} must be a whole number, got {text!r}") from None
        if not low <= value <= high:
            raise PenstockError(f"option {name} must be from {low:,} to {high:,}, got {text}")
        return value

    def parse_float(self, name: str, default: float, *, allow_zero: bool = False) -> float:
        text = self._text.get(name, str(default))
        try:
            value = float(text)
        except ValueError:
            raise PenstockError(f"option {name} must be a number, got {text!r}") from None
        if not math.isfinite(value) or value < 0 or (value == 0 and not allow_zero):
            raise PenstockError(f"option {name} must be {'at least 0' if allow_zero else 'positive'}, got {text}")
        return value

    def parse_flag(self, name: str) -> bool:
        text = self._text.get(name, "false").strip().lower()
        if text not in {"true", "false"}:
            raise PenstockError(f"option {name} must be true or false, got {text!r}")
        return text == "true"

    def parse_choice(self, name: str, known: Sequence[str]) -> str:
        text = self._text.get(name, known[0]).strip().lower()
        if text not in known:
            raise PenstockError(f"option {name} must be one of {', '.join(known)}, got {text!r}")
        return text
