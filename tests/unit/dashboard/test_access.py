"""Who may look at the dashboard."""

from __future__ import annotations

import pytest

from penstock.dashboard.access import is_allowed_host, is_loopback


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.8.8.8:8642", "[::1]:8642", "localhost."])
def test_loopback_is_always_served(host: str) -> None:
    assert is_allowed_host(host, is_local=True)
    assert is_allowed_host(host, is_local=False)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "a b", "[::1", "x\r\ny", "user@localhost", "é"],
)
def test_other_names_are_refused(host: str) -> None:
    assert not is_allowed_host(host, is_local=True)
    assert not is_allowed_host(host, is_local=False)


def test_an_address_can_not_be_rebound() -> None:
    assert is_allowed_host("10.1.2.3:8642", is_local=False)
    assert not is_allowed_host("10.1.2.3:8642", is_local=True)


def test_a_name_can_be_allowed() -> None:
    assert is_allowed_host("Spark.example:8642", is_local=False, names=["spark.example"])


def test_what_is_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "::", "x")] == [True] * 3 + [False] * 3
