"""Pages for people outside the console: their frame, the stylesheet with the design tokens, and the home page.

Templates end in `.html`, so Jinja escapes their values.
"""
