"""Endpoints of distributions for notifications, and the channel that posts to them."""
