"""A hostile tenant or stranger at ten times the size of each pool, and an honest victim beside it."""
