"""Job chains: DAGs of nodes that start, stop, retry, complete, and resume by themselves.

dag.py          a chain's DAG: parsed from dagJson, with its order; validation.py says what is wrong with one
definitions.py  chains as they are stored, and job_definitions.py reusable jobs
states.py       the state machine: what may run next, what is skipped, how a run ends
runs/           a run and its drives: start, stop, retry, complete, and the process that drives it
nodes/          what a node does, by its type
"""
