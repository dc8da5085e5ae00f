"""Fair sharing among tenants: of slots in a process, and of rows that wait for a worker."""
