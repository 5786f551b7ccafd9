"""Time limits of a stop. Who stops a process waits for longer than the process itself ever takes."""

# A stop of the whole platform takes at most so long.
STOP_S = 10.0
# The API: how long its requests may take to finish, and then connections to close.
REQUESTS_S = 5.0
CONNECTIONS_S = 1
# After this time the API leaves, whatever it waits for. A thread that hangs in a database driver cannot be interrupted;
# the exit of the process ends its transaction.
API_LEAVES_AFTER_S = REQUESTS_S + CONNECTIONS_S + 0.5
