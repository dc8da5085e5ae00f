"""Pages for people: templates in one frame, one stylesheet with the design's tokens, and a policy that allows no more.

Templates end in `.html`, so that what they are given is escaped.
"""
