"""The dashboard as a client sees it: what it answers, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx2")

from starlette.testclient import TestClient

from penstock.dashboard.app import build_app
from penstock.dashboard.news_feed import Feed
from penstock.journal import Journal
from penstock.observe import Observatory
from tests.journals import make_records, write_journal

TOKEN = "a-token-of-24-characters"  # noqa: S105 - for a test


@pytest.fixture(scope="module")
def observatory(tmp_path_factory: pytest.TempPathFactory) -> Observatory:
    root = tmp_path_factory.mktemp("jobs")
    write_journal(root / "orders", 50)
    journal = Journal(root / "other", owner="id")
    journal.describe(label="<script>alert(1)</script>", how="by batch", controller="X", classes={})
    journal.append("<img src=x onerror=alert(1)>")
    journal.close()
    return Observatory([root])


@pytest.fixture(scope="module")
def client(observatory: Observatory) -> Iterator[TestClient]:
    with TestClient(build_app(observatory), base_url="http://127.0.0.1:8642") as made:
        yield made


@pytest.fixture(scope="module")
def guarded(observatory: Observatory) -> TestClient:
    return TestClient(
        build_app(observatory, token=TOKEN, is_local=False), base_url="http://10.0.0.1:8642", follow_redirects=False
    )


def test_the_page_asks_no_other_host(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert address.startswith(("static/", "#", "data:,"))
        if address.startswith("static/"):
            assert client.get(f"/{address}").status_code == 200


def test_scripts_name_no_other_host(client: TestClient) -> None:
    for name in ("app.js", "charts.js", "network.js", "story.js", "text.js", "style.css"):
        text = client.get(f"/static/{name}").text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|@import|url\(", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), name


def test_queries_are_listed_and_shown(client: TestClient) -> None:
    overview = client.get("/api/overview").json()
    assert [query["name"] for query in overview["queries"]] == ["orders", "<script>alert(1)</script>"]
    number = overview["queries"][0]["id"]
    detail = client.get(f"/api/queries/{number}").json()
    assert detail["summary"]["batches"] == 50
    assert len(client.get(f"/api/queries/{number}/curves").json()["t"]) == 50
    assert len(client.get(f"/api/queries/{number}/curves?points=10").json()["t"]) <= 11


@pytest.mark.parametrize(
    "path",
    [
        "/static/../page.py",
        "/static/..%2f..%2f__init__.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/style.css%00",
        "/api/queries/../../etc/passwd",
        "/api/queries/%2fetc%2fpasswd",
        "/api/queries/none",
        "/api/queries/none/curves",
        "/owner.json",
    ],
)
def test_no_path_leads_out(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "root:" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/api/overview", "/static/app.js"])
def test_nothing_can_be_changed(client: TestClient, method: str, path: str) -> None:
    assert client.request(method, path).status_code == 405


@pytest.mark.parametrize("query", ["since=x", "until=nan", "points=inf", "since=1e999"])
def test_bad_numbers_are_refused_in_a_line(client: TestClient, observatory: Observatory, query: str) -> None:
    answer = client.get(f"/api/queries/{next(iter(observatory.queries))}/curves?{query}")
    assert answer.status_code == 400
    assert "must be a number" in answer.json()["error"]


def test_other_host_names_are_refused(client: TestClient) -> None:
    for path in ("/", "/api/overview", "/api/events", "/static/app.js"):
        assert client.get(path, headers={"host": "evil.example"}).status_code == 421


def test_beyond_loopback_a_token_is_needed(guarded: TestClient) -> None:
    for path in ("/", "/api/overview", "/static/app.js", "/api/events"):
        assert guarded.get(path).status_code == 401
        assert guarded.get(path, headers={"authorization": "Bearer wrong"}).status_code == 401
        assert guarded.get(f"{path}?token=wrong").status_code == 401
    assert guarded.get("/api/overview", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_token_moves_from_the_address_into_a_cookie(guarded: TestClient) -> None:
    answer = guarded.get(f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=Strict" in answer.headers["set-cookie"]
    assert guarded.get("/api/overview").status_code == 200
    guarded.cookies.clear()


def test_pages_get_what_is_new_and_are_forgotten_when_they_leave(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "job", owner="job")
    records = list(make_records(40))
    for record in records[:30]:
        journal.append(*record)

    async def watch() -> tuple[list[bytes], int, int]:
        observatory = Observatory([tmp_path])
        (number,) = observatory.queries
        feed = Feed(observatory)
        polling = asyncio.create_task(feed.run())
        pages = [feed.follow(number) for _ in range(5)]
        assert [await anext(page) for page in pages] == [b"retry: 1000\n\n"] * 5
        journal.append(*records[30])
        events = []
        for page in pages:
            async for event in page:
                if event.startswith(b"event: query"):
                    events.append(event)
                    break
        open_pages = len(feed)
        for page in pages:
            await page.aclose()
        polling.cancel()
        return events, open_pages, len(feed)

    events, open_pages, left = asyncio.run(asyncio.wait_for(watch(), 60.0))
    journal.close()
    assert len({id(event) for event in events}) == 1  # made once, for all of them
    tick = json.loads(events[0].split(b"data: ")[1])
    assert tick["points"]["batch"][-1] == 30
    assert tick["summary"]["batches"] == 31
    assert (open_pages, left) == (5, 0)
