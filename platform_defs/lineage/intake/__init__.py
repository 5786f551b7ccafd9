"""The intake: parsed JSON becomes a prepared event of a tenant, or a refusal that is kept as a dead letter."""
