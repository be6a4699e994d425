"""Floor 3: one turn, without a database."""
