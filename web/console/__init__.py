"""The console: pages for people. The pages call the same functions as REST and the command line.

The server renders each page as HTML. A form posts to an action and gets a redirect. Scripts refresh fragments
of a page, and every page works without them.
"""
