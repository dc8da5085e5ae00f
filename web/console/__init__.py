"""The console: pages for people, over the same functions that REST and the command line call.

A page is HTML rendered here; a form posts and gets a redirect. Scripts refresh parts of a page, and no page needs them.
"""
