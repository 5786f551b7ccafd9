"""Table arrival: when a source table is complete for a batch, its models run and subscribers of their KPIs are told."""
