"""The executor: leases tasks, fetches their pages, and commits each batch with everything that it changed."""
