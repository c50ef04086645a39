"""Writes batches to a table of a database, each in one transaction together with its number.

Spark's own JDBC writer commits task by task, so a crash leaves half a batch. Here it writes to a staging table, which nobody else
reads. Then one transaction moves the rows on and notes the number of the batch in a table of its own. A batch whose number is
there already is left out.
"""

# ruff: noqa: S608 - names of tables can't be parameters, and they are the user's own

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.spark.sinks.batch_identity import BatchIdentity
from penstock.spark.sinks.connectors import find_driver
from penstock.spark.sinks.schemas import check_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["JdbcSink"]

_JDBC = "org.apache.spark.sql.execution.datasources.jdbc"
_OWN_OPTIONS = ("table", "dbtable", "key", "batches_table")


class JdbcSink:
    """The function that writes one batch.

    Rows with a ``key`` replace those of the same key: they are deleted and inserted in the same transaction, which every database
    can do.
    """

    note = None

    def __init__(self, spark: SparkSession, schema: StructType, output_mode: str, options: Mapping[str, object]) -> None:
        self._spark = spark
        self._options = {name: str(value) for name, value in options.items() if name not in _OWN_OPTIONS}
        table = options.get("table", options.get("dbtable"))
        if table is None or "url" not in self._options:
            raise PenstockError("format 'jdbc' needs url= and table=, such as 'jdbc:postgresql://host/database' and 'results'")
        self._url, self._table = self._options["url"], str(table)
        self._batches = str(options.get("batches_table", "penstock_batches"))
        self._key = _names(options.get("key"))
        self._is_complete = output_mode == "complete"
        if output_mode == "update" and not self._key:
            raise PenstockError(
                "format 'jdbc' with output_mode 'update' needs key=, the columns that tell rows of the table apart"
            )
        for name in self._key:
            if name not in schema.names:
                raise PenstockError(f"format 'jdbc': there is no key column {name!r}; the columns are {', '.join(schema.names)}")
        self._options["driver"] = find_driver(spark, self._url, self._options.get("driver"))
        self._columns = tuple(schema.names)
        self._dialect = self._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._url)
        self._is_first = True
        self._prepare(schema)

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch, unless the database has it."""
        batch = BatchIdentity.read(df, batch_id)
        is_first, self._is_first = self._is_first, False
        if is_first:
            with self._connect() as connection:
                if self._last_batch(connection, batch.query) >= batch.number:
                    return
        staging = self._staging(batch.query)
        df.write.format("jdbc").options(**self._options).option("dbtable", staging).option("truncate", "true").mode(
            "overwrite"
        ).save()
        with self._connect() as connection:
            if self._last_batch(connection, batch.query) < batch.number:
                self._move(connection, staging, batch)

    def _move(self, connection: Any, staging: str, batch: BatchIdentity) -> None:
        """Take the rows of the staging table over, and note the batch, in one transaction."""
        connection.setAutoCommit(False)
        try:
            for statement in build_statements(
                self._table, staging, self._quoted(self._columns), self._quoted(self._key), self._is_complete
            ):
                _execute(connection, statement)
            owner = f"query_id = '{batch.query}' AND target = '{_escape(self._table)}'"
            if not _execute(connection, f"UPDATE {self._batches} SET batch_id = {batch.number} WHERE {owner}"):
                values = f"'{batch.query}', '{_escape(self._table)}', {batch.number}"
                _execute(connection, f"INSERT INTO {self._batches} (query_id, target, batch_id) VALUES ({values})")
            connection.commit()
        except Exception as error:
            connection.rollback()
            reason = _first_line(error)
            raise PenstockError(f"format 'jdbc': batch {batch.number} can't be added to {self._table}: {reason}") from None

    def _prepare(self, schema: StructType) -> None:
        """Check the table, or create it, and create that of the batches' numbers."""
        with self._connect() as connection:
            exists = self._exists(connection, self._table)
            if not self._exists(connection, self._batches):
                columns = "query_id VARCHAR(64) NOT NULL, target VARCHAR(255) NOT NULL, batch_id BIGINT NOT NULL"
                _execute(connection, f"CREATE TABLE {self._batches} ({columns}, PRIMARY KEY (query_id, target))")
        if exists:
            existing = self._spark.read.format("jdbc").options(**self._options).option("dbtable", self._table).load().schema
            check_schema(self._table, existing, schema)
        else:
            empty = self._spark.createDataFrame([], schema)
            empty.write.format("jdbc").options(**self._options).option("dbtable", self._table).mode("append").save()

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        """Open a connection as Spark's own writer does, with its options."""
        options = getattr(self._jvm, f"{_JDBC}.JDBCOptions")(
            self._jvm.PythonUtils.toScalaMap(self._options | {"dbtable": self._table})
        )
        try:
            connection = self._dialect.createConnectionFactory(options).apply(-1)
        except Exception as error:  # Java's, of many kinds
            raise PenstockError(f"format 'jdbc': no connection to {_hide(self._url)}: {_first_line(error)}") from None
        try:
            yield connection
        finally:
            connection.close()

    def _exists(self, connection: Any, table: str) -> bool:
        try:
            _execute(connection, self._dialect.getTableExistsQuery(table), is_query=True)
        except Exception:  # Java's, by database
            return False
        return True

    def _last_batch(self, connection: Any, query: str) -> int:
        """Return the number of the last batch of a query that is in the table; -1 if there is none."""
        owner = f"query_id = '{query}' AND target = '{_escape(self._table)}'"
        statement = connection.createStatement()
        try:
            rows = statement.executeQuery(f"SELECT batch_id FROM {self._batches} WHERE {owner}")
            return int(rows.getLong(1)) if rows.next() else -1
        finally:
            statement.close()

    def _staging(self, query: str) -> str:
        """Return the staging table of a query, in the schema of its table."""
        schema, dot, _ = self._table.rpartition(".")
        return f"{schema}{dot}penstock_staging_{re.sub(r'[^0-9a-z]', '', query.lower())[:12]}"

    def _quoted(self, names: Sequence[str]) -> list[str]:
        return [str(self._dialect.quoteIdentifier(name)) for name in names]


def build_statements(table: str, staging: str, columns: Sequence[str], key: Sequence[str], is_complete: bool) -> Iterator[str]:
    """Yield what moves rows from a staging table to their own.

    >>> list(build_statements("t", "s", ["a", "b"], ["a"], False))[0]
    'DELETE FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.a = t.a)'
    """
    if is_complete:
        yield f"DELETE FROM {table}"
    elif key:
        same = " AND ".join(f"{staging}.{name} = {table}.{name}" for name in key)
        yield f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {staging} WHERE {same})"
    names = ", ".join(columns)
    yield f"INSERT INTO {table} ({names}) SELECT {names} FROM {staging}"


def _execute(connection: Any, sql: str, *, is_query: bool = False) -> int:
    statement = connection.createStatement()
    try:
        if is_query:
            statement.executeQuery(sql)
            return 0
        return int(statement.executeUpdate(sql))
    finally:
        statement.close()


def _names(key: object) -> tuple[str, ...]:
    if key is None:
        return ()
    if isinstance(key, str):
        return (key,)
    if isinstance(key, Sequence):
        return tuple(str(name) for name in key)
    raise PenstockError(f"format 'jdbc': key must be a column or several, got {key!r}")


def _escape(text: str) -> str:
    return text.replace("'", "''")


def _hide(url: str) -> str:
    """Leave out what stands behind the address, which may be a password."""
    return re.split(r"[?;]", url, maxsplit=1)[0]


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java if java is not None else error).splitlines()[0]
