"""Who calls, on whose behalf, who pays, and what they may do; see README.md beside this file."""
