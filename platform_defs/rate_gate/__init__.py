"""The rate gate: how often all processes together may call a source, decided in the database.

A caller names a key (any text), a policy, and asks `RateGate.acquire` before each request; afterwards it reports what
the source answered with `RateGate.feedback`. The gate *books*: one UPDATE gives the caller the next free slot of its
key and tells how long to wait for it, so a request costs one statement however many callers wait.

Clocks: every instant in the tables is read from the database's clock inside the statement that uses it, and only
durations leave the database. The clocks of the machines that call may therefore differ by any amount.
"""
