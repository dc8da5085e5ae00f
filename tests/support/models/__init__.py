"""Fake upstreams, catalogs and prices for tests of models."""
