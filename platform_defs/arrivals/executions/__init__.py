"""Executions of models for batches: their tasks, their life from queueing to closing, the run, and the recovery."""
