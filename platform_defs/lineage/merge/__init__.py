"""The merge: facts and what the graph remembers of earlier facts become operations, without any I/O.

The graph is a function of the set of events. A fact's *stamp* is its event's version and its place in the event; all
stamps are different, and every rule below only compares stamps, so the order of arrival cannot matter:

1. A name at a time. Something named N by a fact of stamp u is followed through renames: from u on it bears N until the
   first rename of N, or of what N is part of, after u; then it bears the new name, and so on until now.
2. Drops. A fact is dead once what it is about, or something above that, by the name it bears then, is dropped later.
   A metric is below every schema it was ever put under by HAS_METRIC.
3. An asset exists when a living fact says so: Exists on it or on something below it, or a ColumnSet.
   Each property, each entry of `properties` and the label come from the living fact with the greatest stamp; a fact
   that says all entries replaces those that were said of the asset before.
   The columns of one set share a stamp: when a rename makes two of them one, the one that was renamed gives way.
4. A ColumnSet drops the columns of its table that it does not name.
5. An edge is what the greatest living fact says of it; a LinkSet unlinks what it does not name, and ColumnsUnlinked
   all that was said of the table's columns before. It is shown while both ends exist. A fact about an edge dies with
   either end.
6. The Tenant node, OWNS_* and the hierarchy's edges follow from the assets that exist.

Only the newest facts are remembered (state.py). Where that cannot decide exactly, which takes a rename that comes late
or facts from before a rename that come late in a contradictory way, NeedsRebuild is raised. Events that are applied in
the order of their versions never need it.
"""
