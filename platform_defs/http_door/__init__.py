"""The door: the one way in which a request of a system leaves the platform.

A `Door` asks the rate gate before each attempt, sends, tells the gate what came back, and tries again as the retry
policy says. It bounds time, size, redirects and decompression, hears a cancel event, and shows no query of a URL.
"""
