"""How much the graph stores one by one. Of what exceeds a bound it stores a summary, which usually suffices to decide.

Where the summary does not suffice, the merge raises NeedsRebuild. A rebuild holds the whole graph in memory and has no
bounds: they apply only to what it writes in the end.
"""

# How many speakers that claim the same column, or the same edge of column lineage, are stored (speech/crowds.py).
MAX_CLAIMS = 32
# How many completed runs of a speaker are stored, besides those that still count, and how many that have not completed
# (speech/past_runs.py).
MAX_RUNS = 8
MAX_OPEN_RUNS = 32
# How many statements that still count are stored of a speaker's other uncompleted runs.
MAX_UNFINISHED = 256
# Of how many runs that are not stored any more a trace is kept: of completed ones, and of those that never completed.
MAX_PAST_COMPLETED = 32
MAX_PAST_OPEN = 128
# How many events that named a table, a schema or a catalog are stored with it (relinking.py).
MAX_NAMED = 16
