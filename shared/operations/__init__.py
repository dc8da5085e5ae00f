"""What operators read: health checks, service metrics, queue depths, action items."""
