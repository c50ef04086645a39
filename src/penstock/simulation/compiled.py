"""Compiled loops, with numba if it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.errors import PenstockError

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a loop over plain arrays, to run beside other threads.

    Without numba, calling it raises an error that says what to install.
    """
    try:
        from numba import njit  # noqa: PLC0415 - an extra
    except ImportError:

        def missing(*_: Any, **__: Any) -> Any:
            raise PenstockError("the simulator needs numba: pip install 'penstock[simulation]'")

        return missing  # type: ignore[return-value]
    return njit(cache=True, nogil=True)(function)  # type: ignore[return-value]
