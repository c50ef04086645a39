"""Sinks that know the number of a batch: Kafka, Delta, Iceberg and databases."""
