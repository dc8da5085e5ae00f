"""Fair sharing among tenants of two resources: the slots of a process, and the workers for which rows wait."""
