"""Floor 2: models: the one LiteLLM importer and the scripted model."""
