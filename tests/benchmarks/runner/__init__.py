"""The runner of the benchmarks: it starts services, measures, and reports."""
