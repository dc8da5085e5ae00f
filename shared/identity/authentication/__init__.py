"""Authentication: resolve a credential to a caller, and check the caller again while its request runs."""
