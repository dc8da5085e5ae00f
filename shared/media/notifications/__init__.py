"""Distributions' notification endpoints, and the channel that posts to them."""
