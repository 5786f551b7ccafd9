"""How a slice is fetched: page after page, what a page holds, and where it ends. Nothing here knows the database."""
