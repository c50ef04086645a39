"""A real browser without a window, and the dashboard in a process of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["find_browser", "open_browser", "run_dashboard"]

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


def find_browser() -> tuple[str, str] | None:
    """Return the system's Chromium and its driver; ``None`` if one of them is missing."""
    browser = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return None if browser is None or driver is None else (browser, driver)


@contextlib.contextmanager
def open_browser(width: int = 1440, height: int = 1000) -> Iterator[Chrome]:
    """Open a browser that knows nothing of earlier ones."""
    from selenium import webdriver  # noqa: PLC0415 - only where there is a browser
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    paths = find_browser()
    if paths is None:
        raise RuntimeError("there is no browser: install chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = paths[0]
    with tempfile.TemporaryDirectory(prefix="penstock-browser-", ignore_cleanup_errors=True) as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        browser = webdriver.Chrome(options=options, service=Service(paths[1]))
        try:
            yield browser
        finally:
            browser.quit()


@contextlib.contextmanager
def run_dashboard(*directories: Path, port: int = 0) -> Iterator[str]:
    """Serve directories on loopback, and yield the address."""
    command = [sys.executable, "-m", "penstock", "dashboard", *map(str, directories), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}) as process:  # noqa: S603 - this program
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            if "http://" not in line:
                raise RuntimeError(f"the dashboard did not start: {line!r}")
            yield line.split()[1]
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
