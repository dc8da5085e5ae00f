"""Upstreams, catalogs and prices for tests of models."""
