"""Administrative commands over REST: which operation a command becomes, and with which parameters."""
