"""The demo: one Spark job under a replayed burst, first as Spark runs it, then with Penstock.

``work`` is what a row costs, ``job`` the job, ``arm`` one run of it, ``run`` the whole demo, ``summary`` what it comes to,
``plots`` and ``page`` what it looks like. Only ``job``, ``arm`` and ``run`` need Spark.
"""
