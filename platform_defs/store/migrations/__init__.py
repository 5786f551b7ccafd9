"""Alembic migrations, forward only: the way back is a restored backup."""
