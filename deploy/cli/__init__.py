"""The `quartermaster` command."""
