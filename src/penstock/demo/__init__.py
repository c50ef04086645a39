"""The demo: one Spark job under a replayed burst, first without shedding, then with Penstock.

``work`` is the work per row, ``job`` the Spark job, ``arm`` one run of it, ``run`` the whole demo, ``summary`` its results,
``plots`` and ``page`` the report. Only ``job``, ``arm`` and ``run`` need Spark.
"""
