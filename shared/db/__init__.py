"""PostgreSQL: transactions, statements, the schema's conventions, locks and leases."""
