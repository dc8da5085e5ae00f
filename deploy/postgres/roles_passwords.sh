#!/bin/sh
# Set the passwords of the roles that roles.sql created. The Postgres image runs it once, after roles.sql.
set -eu
psql --set ON_ERROR_STOP=1 --quiet --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
    --set migrations="$(cat /run/secrets/migrations_password)" \
    --set application="$(cat /run/secrets/application_password)" <<'SQL'
ALTER ROLE quartermaster_migrations PASSWORD :'migrations';
ALTER ROLE quartermaster_app PASSWORD :'application';
SQL
