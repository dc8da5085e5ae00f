"""What a process runs on: threads, retries, batches, sockets, the log writer, garbage collection."""
