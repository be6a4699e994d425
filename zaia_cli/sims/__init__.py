"""Floor 5: local stand-ins over real HTTP: a model server and a Graph API."""
