"""Alembic's entry point: run the migrations on the connection that `runner.py` opened."""

from alembic import context

from shared.db.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
