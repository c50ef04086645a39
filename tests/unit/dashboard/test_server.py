"""The dashboard as a process: it starts, says where it is, and ends when asked, whoever is looking."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.journals import write_journal

pytest.importorskip("uvicorn")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_quietly_with_pages_open(tmp_path: Path, how: signal.Signals) -> None:
    write_journal(tmp_path / "job", 3)
    command = [sys.executable, "-u", "-m", "penstock", "dashboard", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = urlsplit(process.stdout.readline().split()[1])
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=60.0) as page:
            page.sendall(f"GET /api/events?query=x HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            received = b""
            while b"retry: 1000" not in received:
                received += page.recv(4096)
            process.send_signal(how)
            process.wait(60.0)
        assert process.stderr.read() == ""
