"""The framework of all routes: declaration, authentication, request context, admission and rendering."""
