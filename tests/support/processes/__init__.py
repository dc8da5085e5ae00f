"""Start, fork, kill and trace processes of the service and of the test run."""
