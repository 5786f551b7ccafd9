"""Extraction: turns one event into facts about the asset graph."""
