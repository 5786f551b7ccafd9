"""Requests of a spec: rendered, authenticated, sent through the HTTP door, and answered with parsed JSON."""
