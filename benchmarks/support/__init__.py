"""What benchmarks share: results and timing, networks and jobs to run, averages over runs."""
