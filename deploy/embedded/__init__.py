"""`make up`: the whole service on one machine, with Postgres and Valkey servers from Python wheels."""
