"""The OpenAPI document, generated from the declared routes, and the pages that show the document."""
