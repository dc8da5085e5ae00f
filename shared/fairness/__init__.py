"""Fair sharing among tenants: of a process's slots, and of rows that wait for a worker."""
