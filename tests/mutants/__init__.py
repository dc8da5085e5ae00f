"""Mutation testing: a catalogue of small wrong changes to the product, and the tests that must fail on each."""
