"""Traffic, and engines that run in simulated time."""
