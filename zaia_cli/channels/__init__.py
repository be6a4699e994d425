"""Floor 2: channels: reading what they deliver and sending what we answer."""
