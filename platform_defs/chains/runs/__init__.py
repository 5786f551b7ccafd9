"""Runs of chains: their start, their drives, and what operators do to them."""
