"""Traffic and plants in simulated time."""
