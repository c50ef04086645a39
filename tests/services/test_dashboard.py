"""The dashboard as a person uses it: a real browser, a live journal."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from benchmarks.support.browser import find_browser, open_browser, run_dashboard
from penstock.coordination.fingerprint import describe_network
from penstock.dashboard import render_report_page
from penstock.journal import Journal
from penstock.observe import Observatory
from penstock.observe.embedding import embed
from tests.journals import make_records, write_journal
from tests.networks import figure1

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

_WAIT_S = 60.0
_HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"


class LiveJob:
    """A job that writes its journal while a test looks on: a batch every third of a second."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path, owner="live")
        self._journal.describe(label="orders", how="by batch", controller="MicroBatch", classes={})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        records = make_records(10_000)
        for decision, batch in records:
            now_s = time.time()
            shift_s = now_s - (batch.end_s or 0.0)
            arrival_s = None if batch.mean_arrival_s is None else batch.mean_arrival_s + shift_s
            moved = replace(batch, start_s=(batch.start_s or 0.0) + shift_s, end_s=now_s, mean_arrival_s=arrival_s)
            self._journal.append(decision, moved)
            if self._stop.wait(0.33):
                return

    def stop(self) -> None:
        """End the job."""
        self._stop.set()
        self._thread.join()
        self._journal.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A live job, one with a hostile name that has ended, and a network."""
    folder = tmp_path_factory.mktemp("jobs")
    write_journal(folder / "hostile" / "penstock", 300, has_classes=True)
    journal = Journal(folder / "hostile" / "penstock", owner="job")
    journal.describe(label=_HOSTILE, how="by arrival", controller=_HOSTILE, classes={"in": [_HOSTILE, "bronze"]})
    journal.append(_HOSTILE)
    journal.close()
    network = folder / "net"
    network.mkdir()
    (network / "network.json").write_text(json.dumps(describe_network(figure1())))
    status = {"measurements": {"capacity": 1.0, "rates": {"i1": 1.0}, "operators": {"a1": [1.0, 0, 1.0, 0]}}, "reason": "plan 3"}
    (network / "nodes" / "A").mkdir(parents=True)
    (network / "nodes" / "A" / "status.json").write_text(json.dumps(status | {"at_s": time.time()}))
    job = LiveJob(folder / "orders" / "penstock")
    yield folder
    job.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """The browser; tests skip where there is none."""
    if find_browser() is None:
        pytest.skip("there is no browser: apt-get install chromium chromium-driver")
    pytest.importorskip("selenium")
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with run_dashboard(root / "orders", root / "hostile", root / "net") as served:
        yield served


def wait(condition: Callable[[], Any], what: str) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        try:
            if value := condition():
                return value
        except Exception as error:  # the page is being built
            last = error
        else:
            last = None
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come true within {_WAIT_S:g} s: {last}")


@pytest.fixture
def page(browser: Chrome, address: str) -> Chrome:
    """The page on the live job, with its charts drawn."""
    browser.set_window_size(1440, 1000)
    browser.get("about:blank")
    browser.get(address)
    choose(browser, "orders")
    return browser


def choose(browser: Chrome, name: str) -> None:
    """Click on a query."""
    found = "[...document.querySelectorAll('nav.side button')].find(b => b.textContent.includes(arguments[0]))"
    script = f"const b = {found}; if (b) b.click(); return !!b"
    wait(lambda: browser.execute_script(script, name), f"a button for {name}")
    wait(lambda: name in browser.find_element("css selector", "h1").text, f"the page of {name}")
    wait(lambda: browser.find_elements("css selector", ".chart canvas"), "charts")


def text_of(browser: Chrome, selector: str) -> str:
    """Return a text in one call: between finding an element and reading it, the page may be drawn anew.

    A drawing has no ``innerText``.
    """
    read = "const found = document.querySelector(arguments[0]); return found?.innerText ?? found?.textContent ?? ''"
    return str(browser.execute_script(read, selector)).strip()


def tile(browser: Chrome, label: str) -> str:
    found = "[...document.querySelectorAll('.tile')].find(t => t.textContent.startsWith(arguments[0]))"
    return str(browser.execute_script(f"return {found}.querySelector('.value').textContent", label))


def picture(browser: Chrome) -> str:
    return str(browser.execute_script("return document.querySelector('[data-chart=delay] canvas').toDataURL()"))


def test_the_delay_line_moves_as_batches_end(page: Chrome) -> None:
    wait(lambda: text_of(page, "#connection") == "live", "the connection")
    before, drawn = int(tile(page, "Batches")), picture(page)
    wait(lambda: int(tile(page, "Batches")) >= before + 3, "three more batches")
    wait(lambda: picture(page) != drawn, "another picture")
    assert "target" in text_of(page, "[data-chart=delay] .u-legend")
    decisions = page.find_elements("css selector", "#decisions summary")
    assert decisions[0].text.startswith("batch ")


def test_a_name_from_data_stays_text(page: Chrome) -> None:
    choose(page, "window.hacked")
    assert text_of(page, "h1").startswith(_HOSTILE)
    assert _HOSTILE in text_of(page, "#notes")
    assert _HOSTILE in text_of(page, "#gates")
    page.execute_script("[...document.querySelectorAll('nav.side button')][0].click()")
    wait(lambda: text_of(page, "h1") == "All queries", "the table")
    assert page.execute_script("return window.hacked") is None


def test_classes_have_curves_of_their_own(page: Chrome) -> None:
    choose(page, "window.hacked")
    for chart, unit in (("part-keep", "%"), ("part-shed", "rows/s")):
        shown = wait(lambda chart=chart: text_of(page, f"[data-chart={chart}] .u-legend"), "the legend")
        assert "bronze" in shown
        assert unit in shown
    names = "return [...document.querySelectorAll('[data-chart=part-keep] .u-label')].map(label => label.textContent)"
    assert page.execute_script(names)[1:] == [_HOSTILE, "bronze"]
    assert page.execute_script("return window.hacked") is None
    choose(page, "orders")  # one gate without classes
    wait(lambda: not page.find_elements("css selector", "[data-chart=part-keep]"), "charts without classes")


def test_focus_and_scrolling_stay_while_numbers_change(page: Chrome) -> None:
    page.execute_script("[...document.querySelectorAll('nav.side button')][0].click()")
    wait(lambda: text_of(page, "h1") == "All queries", "the table")
    link = "[...document.querySelectorAll('td button.link')].find(b => b.textContent === 'orders')"
    page.execute_script(f"{link}.focus()")
    before = page.execute_script(f"return {link}.closest('tr').textContent")
    wait(lambda: page.execute_script(f"return {link}.closest('tr').textContent") != before, "other numbers")
    assert page.execute_script("return document.activeElement.textContent") == "orders"
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        page.execute_script("document.querySelector('.scroll').scrollLeft = 60")
        before = page.execute_script(f"return {link}.closest('tr').textContent")
        wait(lambda: page.execute_script(f"return {link}.closest('tr').textContent") != before, "other numbers")
        assert page.execute_script("return document.querySelector('.scroll').scrollLeft") == 60
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_hovering_shows_the_values_under_the_cursor(page: Chrome) -> None:
    from selenium.webdriver import ActionChains

    choose(page, "window.hacked")  # its charts stand still
    rest = text_of(page, "[data-chart=delay] .u-legend")
    plot = page.find_element("css selector", "[data-chart=delay] .u-over")
    ActionChains(page).move_to_element_with_offset(plot, -int(plot.size["width"]) // 4, 0).perform()
    shown = wait(lambda: (now := text_of(page, "[data-chart=delay] .u-legend")) != rest and now, "values under the cursor")
    assert " s" in shown or " ms" in shown
    others = wait(lambda: text_of(page, "[data-chart=keep] .u-legend"), "the same moment in another chart")
    assert "%" in others


def test_dragging_zooms_and_a_double_click_goes_back(page: Chrome) -> None:
    from selenium.webdriver import ActionChains

    choose(page, "window.hacked")
    plot = page.find_element("css selector", "[data-chart=delay] .u-over")
    whole = text_of(page, "#resolution")
    ActionChains(page).move_to_element_with_offset(plot, -100, 0).click_and_hold().move_by_offset(150, 0).release().perform()
    wait(lambda: text_of(page, "#resolution") != whole, "fewer batches")
    assert page.find_elements("css selector", ".ranges [aria-pressed=true]") == []
    page.find_element("css selector", "body").send_keys("0")
    wait(lambda: text_of(page, "#resolution") == whole, "all batches again")


def test_the_keyboard_is_enough(page: Chrome) -> None:
    from selenium.webdriver import Keys

    body = page.find_element("css selector", "body")
    seen = set()
    for _ in range(4):
        before = text_of(page, "h1")
        body.send_keys("j")
        wait(lambda before=before: text_of(page, "h1") != before, "another page")
        seen.add(text_of(page, "h1"))
    assert len(seen) == 4
    choose(page, "orders")
    body.send_keys("1")
    wait(lambda: text_of(page, ".ranges [aria-pressed=true]") == "5 min", "five minutes")
    body.send_keys("?")
    wait(lambda: page.find_element("id", "help").is_displayed(), "the help")
    page.find_element("css selector", "#help button").send_keys(Keys.ENTER)
    choose(page, "window.hacked")
    rest = text_of(page, "[data-chart=delay] .u-legend")
    page.find_element("css selector", "[data-chart=delay] .plot").send_keys(*([Keys.ARROW_LEFT] * 5))
    wait(lambda: text_of(page, "[data-chart=delay] .u-legend") != rest, "the values to the left")


def test_dark_and_light(page: Chrome) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    page.execute_script("document.documentElement.dataset.theme = 'light'")
    light = page.execute_script(colour)
    page.find_element("css selector", "body").send_keys("t")
    assert page.execute_script(colour) != light
    page.find_element("id", "theme").click()
    assert page.execute_script(colour) == light


@pytest.mark.parametrize("width", [320, 390, 768, 1920])
def test_it_fits_any_window(page: Chrome, width: int) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        chart = "document.querySelector('[data-chart=delay] .uplot').clientWidth"
        fits = f"return document.documentElement.scrollWidth <= innerWidth && {chart} <= innerWidth && {chart} > innerWidth * .3"
        wait(lambda: page.execute_script(fits), f"a page that fits {width} pixels")
        is_narrow = width < 900
        assert page.find_element("id", "pick").is_displayed() == is_narrow
        assert page.find_element("id", "side").is_displayed() != is_narrow
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_lost_connection_is_said_so_and_comes_back(browser: Chrome, root: Path) -> None:
    with run_dashboard(root / "orders") as served:
        port = urlsplit(served).port or 0
        browser.get("about:blank")
        browser.get(served)
        wait(lambda: text_of(browser, "#connection") == "live", "the connection")
    wait(lambda: "lost" in text_of(browser, "#connection"), "the loss")
    before = int(tile(browser, "Batches"))
    with run_dashboard(root / "orders", port=port):
        wait(lambda: text_of(browser, "#connection") == "live", "the connection again")
        wait(lambda: int(tile(browser, "Batches")) > before, "batches that ended meanwhile")
        browser.get("about:blank")


def test_it_waits_for_journals_and_finds_one_of_many_by_its_name(browser: Chrome, tmp_path: Path) -> None:
    from selenium.webdriver import Keys

    with run_dashboard(tmp_path) as served:
        browser.get("about:blank")
        browser.get(served)
        wait(lambda: text_of(browser, "h1") == "No journal yet", "a page without queries")
        assert not browser.find_element("id", "filter").is_displayed()
        for number in range(12):
            write_journal(tmp_path / f"query-{number:02d}" / "penstock", 2)
        wait(lambda: text_of(browser, "h1") == "All queries", "queries")
        wait(lambda: len(browser.find_elements("css selector", "td button.link")) == 12, "all of them")
        browser.find_element("css selector", "body").send_keys("/")
        browser.switch_to.active_element.send_keys("y-07")
        wait(lambda: len(browser.find_elements("css selector", "td button.link")) == 1, "one of them")
        browser.switch_to.active_element.send_keys(Keys.ENTER)
        wait(lambda: text_of(browser, "h1").startswith("query-07"), "its page")
        browser.get("about:blank")


def test_a_network_is_drawn(page: Chrome) -> None:
    page.execute_script("[...document.querySelectorAll('nav.side button')].find(b => b.textContent.includes('Network')).click()")
    wait(lambda: page.find_elements("css selector", ".net svg [data-part=b2]"), "the drawing")
    wait(lambda: "node A" in text_of(page, ".net svg") and "plan 3" in text_of(page, "main"), "its texts")


def test_nothing_is_asked_of_other_hosts_and_nothing_is_complained_about(page: Chrome, address: str) -> None:
    asked = page.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert asked
    assert {urlsplit(one).netloc for one in asked} == {urlsplit(address).netloc}
    severe = [
        entry for entry in page.get_log("browser") if entry["level"] == "SEVERE" and "ERR_CONNECTION" not in entry["message"]
    ]
    assert [entry["message"] for entry in severe if "INCOMPLETE_CHUNKED" not in entry["message"]] == []


def test_the_report_is_the_same_page_in_one_file(browser: Chrome, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_report_page(embed(Observatory([root / "hostile", root / "net"]))), encoding="utf-8")
    browser.get_log("browser")
    browser.get(file.as_uri())
    choose(browser, "window.hacked")
    assert text_of(browser, "#connection") == "report"
    assert text_of(browser, "h1").startswith(_HOSTILE)
    assert browser.execute_script("return window.hacked") is None
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
