"""The console: pages for people, over the same functions that REST and the command use.

A page is HTML made here; forms post and are answered by a redirect. Scripts add live parts, and nothing needs them.
"""
