"""The executor: takes tasks from the queue, fetches their slices, and commits each batch with all that it changed."""
