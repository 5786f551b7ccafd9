"""Ingest: harvests paged HTTP sources as the Registry describes them, exactly once, window by window.

Registry -> spec snapshot -> schedule instance -> plan -> slice -> task -> run -> batch -> cursor. The planner writes
plans, slices and tasks and sends no request; the executor leases tasks, fetches pages and commits batches. Both meet
only in the database.
"""
