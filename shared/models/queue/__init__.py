"""Model calls between the web process and a worker: queue, replies, limits per organization."""
