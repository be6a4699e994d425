"""Floor 1: pure data, rules and errors; imports nothing of Zaia above itself."""
