"""Run the agent program of a GitHub deployment from a git checkout (`quartermaster run`)."""
