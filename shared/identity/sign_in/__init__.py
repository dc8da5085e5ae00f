"""Sessions of the console, and sign-in by OpenID Connect."""
