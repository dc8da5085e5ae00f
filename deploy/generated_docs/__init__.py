"""Programs that write documentation from the code."""
