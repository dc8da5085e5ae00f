"""Payments reported by payment systems, entered once each."""
