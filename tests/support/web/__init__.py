"""A web process in the process of a test, and the OpenAPI document that its responses are checked against."""
