"""Data for operators: health checks, service metrics, queue depths, action items."""
