"""A sink in Python that commits a batch once for its number; Spark 3.5 has no such sinks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no data sources in Python")

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

if TYPE_CHECKING:
    from pyspark.sql import Row


class Committed(WriterCommitMessage):
    def __init__(self, values: list[int]) -> None:
        self.values = values


class Shelf(DataSource):
    """A sink of somebody else's, of Spark's second kind, which commits a batch once for its number."""

    @classmethod
    def name(cls) -> str:
        return "shelf"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        return ShelfWriter(self.options["directory"])


class ShelfWriter(DataSourceStreamWriter):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def write(self, rows: Iterator[Row]) -> WriterCommitMessage:
        return Committed([row["value"] for row in rows])

    def commit(self, messages: list[Any], batch_id: int) -> None:
        values = sorted(value for message in messages for value in message.values)
        with (Path(self.directory) / f"{batch_id}").open("x") as file:
            json.dump(values, file)

    def abort(self, messages: list[Any], batch_id: int) -> None:
        raise AssertionError
