"""Gates over public functions only, for Spark Connect and whatever else forbids the JVM.

The classic gate reads a table that its driver replaces inside the plan. Here the table is a file of one row (``table_file``). A
scalar subquery reads it before every batch, so no batch compiles anything anew. Rows are counted by observed metrics, which come
with Spark's progress. ``connect_gate`` has the filter, ``connect_driver`` the loop, which runs in the client, and ``start`` puts
them together. Decisions take effect by arrival.
"""

from __future__ import annotations

__all__: list[str] = []
