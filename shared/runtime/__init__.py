"""What a process needs to run: threads, retries, batches, sockets, the log writer, garbage collection."""
