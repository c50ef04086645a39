"""Kafka without Spark: topics that carry a network, and the rate that a producer may send."""
