"""Objects that handlers depend on, built once per process."""
