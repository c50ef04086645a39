"""A private PostgreSQL on the loopback, in a temporary directory, run by a user without privileges."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from penstock.testing.maven import UnavailableError

_USER = "postgres"  # Debian's package makes it; initdb refuses root


class Postgres:
    """One cluster with one database. ``stop`` ends it and removes its files."""

    def __init__(self) -> None:
        self._programs = _find_programs()
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def start(self) -> Self:
        if os.geteuid() == 0:
            shutil.chown(self._directory, _USER)
        data = self._directory / "data"
        self._run("initdb", "-D", data, "-U", "penstock", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        settings = f"-p {self.port} -h 127.0.0.1 -k {self._directory} -F"
        self._run("pg_ctl", "-D", data, "-w", "-l", self._directory / "log", "-o", settings, "start")
        return self

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._directory / "data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(self._directory, ignore_errors=True)

    def query(self, sql: str) -> list[tuple[str, ...]]:
        """Run a statement outside of Spark and JDBC."""
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "penstock", "-d", "postgres", "-At", "-F", "\t", "-c", sql]
        done = subprocess.run(["psql", *options], capture_output=True, text=True, check=True, timeout=30)
        return [tuple(line.split("\t")) for line in done.stdout.splitlines()]

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._programs / program), *map(str, arguments)]
        user = _USER if os.geteuid() == 0 else None
        try:
            done = subprocess.run(
                command, user=user, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/", timeout=60, check=False
            )
        except (KeyError, LookupError):
            raise UnavailableError(f"PostgreSQL needs a user {_USER!r}, since initdb refuses root") from None
        if done.returncode:
            raise UnavailableError(f"PostgreSQL can't be started: {program}: {done.stderr.strip().splitlines()[-1:]}")


def _find_programs() -> Path:
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *map(Path, os.get_exec_path())]
    for place in places:
        if (place / "initdb").exists() and (place / "pg_ctl").exists():
            return place
    raise UnavailableError("no PostgreSQL server here (Debian: apt-get install postgresql)")
