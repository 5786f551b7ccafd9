"""Table arrival: a table lands, exactly the right models run, the right people hear of it."""
