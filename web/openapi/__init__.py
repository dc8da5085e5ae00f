"""The OpenAPI document, made of the declared routes, and the pages that show it."""
