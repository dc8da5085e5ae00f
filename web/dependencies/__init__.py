"""The services that handlers depend on, created once per process."""
