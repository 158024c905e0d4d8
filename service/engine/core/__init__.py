"""What every engine shares: queue, tickets, threads, drain, errors, statistics."""
