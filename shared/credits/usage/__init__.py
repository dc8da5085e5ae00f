"""Usage records, their rollups, reports and pruning."""
