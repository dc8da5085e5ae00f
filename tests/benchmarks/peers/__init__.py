"""The yardsticks: other servers that do a comparable job."""
