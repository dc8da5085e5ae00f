"""The commands of `quartermaster`, with one module for each area of the service."""
