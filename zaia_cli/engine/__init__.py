"""Floor 4: durable orchestration: intake, worker, delivery, recovery."""
