"""PostgreSQL: transactions, statements, schema conventions, locks and leases."""
