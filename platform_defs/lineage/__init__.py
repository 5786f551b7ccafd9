"""The lineage system: takes OpenLineage events, stores them, and keeps one asset graph per tenant.

The graph depends on the set of accepted events only, not on their order: see merge/.
"""
