"""Real servers for tests: Postgres, Valkey, RabbitMQ, nginx, PgBouncer, disks, certificates, links that can be cut."""
