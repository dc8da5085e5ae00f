"""Queues of model calls between web processes and workers."""
