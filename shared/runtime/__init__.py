"""Building blocks of a process: threads, retries, batches, sockets, the log writer, garbage collection."""
