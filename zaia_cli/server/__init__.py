"""Floor 5: webhooks over HTTP."""
