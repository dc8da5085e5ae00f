"""Authentication: from a credential to a caller, now and again while a call is worked on."""
