"""The merge: turns new facts, and the facts that the graph remembers, into operations on the graph. It does no I/O.

The graph is a function of the set of events. A fact's *stamp* is the version of its event followed by the fact's
position in the event. All stamps are different, and every rule below only compares stamps, so the order in which events
arrive cannot matter:

1. Renames. A fact of stamp u about the name N is followed through later renames: it is about N until the first rename
   after u of N or of an asset above N, then about the new name, and so on until now.
2. Drops. A fact is dead if its asset, or an asset above it, was dropped later, under the name that it had at that time.
   A metric counts as below every schema under which HAS_METRIC ever put it.
3. Existence. An asset exists if a living fact says so: an Exists about it or about an asset below it, or a ColumnSet.
   Its label, each property and each entry of `properties` come from the living fact with the greatest stamp. A fact
   with all_entries replaces all entries that older facts gave to the asset.
   The columns of one ColumnSet share a stamp. If a rename makes two of them one column, the one that kept its name
   counts.
4. A ColumnSet drops those columns of its table that it does not list.
5. Edges. The living fact with the greatest stamp decides whether an edge stands and what its properties are. A LinkSet
   removes the links that it does not list, and ColumnsUnlinked all earlier links of the table's columns. An edge is
   shown while both of its ends exist, and a fact about an edge dies when either end is dropped.
6. The Tenant node, the OWNS_* edges and the edges of the hierarchy follow from the assets that exist.

What jobs say has rules of its own (speech/): a Statement counts until newer runs of its job replace it, except for the
types of columns, of which the last known one stays.

Only the newest facts are remembered (state.py), and a bounded number of them (bounds.py). Where they do not suffice to
decide exactly, the merge raises NeedsRebuild. It may have to in these cases:

- A rename arrives after newer facts about its old or its new name.
- A late fact is about an asset that a rename has since made one with another asset.
- A late drop, or a late set of columns, is older than a rename of something below that asset.
- An old statement of a job counts again, about a table that a rename has since made one with another table.
- The cases that relinking.py, speech/crowds.py and speech/past_runs.py describe.

A rebuild never raises it: it applies all events in the order of their versions, to a state that holds everything.
"""
