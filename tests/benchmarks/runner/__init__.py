"""What runs, measures and reports the benchmarks."""
