"""Floor 5: views over what happened: story, trace, cost, queue, health."""
