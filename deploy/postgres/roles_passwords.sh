#!/bin/sh
# Give the roles that roles.sql made their passwords; run by the Postgres image after it, once.
set -eu
psql --set ON_ERROR_STOP=1 --quiet --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
    --set migrations="$(cat /run/secrets/migrations_password)" \
    --set application="$(cat /run/secrets/application_password)" <<'SQL'
ALTER ROLE quartermaster_migrations PASSWORD :'migrations';
ALTER ROLE quartermaster_app PASSWORD :'application';
SQL
