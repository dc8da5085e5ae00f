"""Run the whole service on one machine (`make up`), with Postgres and Valkey servers from Python wheels."""
