"""The script that Alembic runs: it applies migrations on the connection that store/migrate.py opened and locked."""

from alembic import context

from platform_defs.store.migrations import resumable
from platform_defs.store.migrations.rendering import render_item, rewrite
from platform_defs.store.tables import metadata

assert resumable.ResumableMySQLImpl.__dialect__ == "mysql"  # the import registers the class with Alembic

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_item=render_item,
    process_revision_directives=rewrite,
)
with context.begin_transaction():
    context.run_migrations()
