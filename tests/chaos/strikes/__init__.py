"""Fault injection for chaos: strikes that kill processes, cut links, move clocks, and lose or repeat messages."""
