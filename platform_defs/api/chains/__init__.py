"""Job chains over HTTP."""
