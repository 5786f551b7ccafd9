"""The relational store: SQLAlchemy Core tables, one module per system, and how every process talks to them."""
