"""The relational store: the engine, tables (one module per system), migrations and portable statements."""
