"""Run administrative commands over REST: map each command to a REST operation and convert its parameters."""
