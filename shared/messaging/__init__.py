"""The message broker and Valkey: queues, jobs, and replies to the web process that waits for them."""
