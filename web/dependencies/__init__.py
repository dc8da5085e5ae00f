"""The services that handlers use. Each process creates the services once."""
