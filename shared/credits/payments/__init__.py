"""Payments that payment systems report. Each payment is entered in the ledger once."""
