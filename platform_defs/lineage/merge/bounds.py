"""How much the merge remembers one by one. What lies beyond a bound is either decided all the same or needs a rebuild.

The bounds hold for what is stored in the graph. A rebuild, which holds the whole graph in memory, has none of them: it
forgets only when it writes.
"""

# So many speakers who claim a column, or an edge of column lineage, are remembered one by one (speech/crowds.py).
MAX_CLAIMS = 32
# A speaker remembers this many completed runs beside those that still count, and so many that have not completed
# (speech/past_runs.py).
MAX_RUNS = 8
MAX_OPEN_RUNS = 32
# Of a speaker's uncompleted runs that are not remembered one by one: so many statements that count.
MAX_UNFINISHED = 256
# Traces of so many runs are stored that are not remembered any more: of completed ones and of others.
MAX_PAST_COMPLETED = 32
MAX_PAST_OPEN = 128
# A table and what is above it remember so many events that named them (relinking.py).
MAX_NAMED = 16
