"""A network of queries as Spark applications: run directory, nodes, their deployment, operators and transport."""
