"""Cursors: event first, then the value, only forward, each operation in a namespace of its own."""
