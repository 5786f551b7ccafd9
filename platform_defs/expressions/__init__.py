"""Sandboxed templates, JSONPath and times of sources: how requests are rendered and responses are read.

templates.py    ${...} in text: compile once, render against a Context
functions.py    the white-listed functions, and registries of them
requests.py     query parameters, headers and form fields; url_paths.py and json_bodies.py the other places
json_paths.py   JSONPath over parsed responses
instants.py     the times that real sources send
"""
