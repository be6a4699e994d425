"""Floor 6: the command line: one command a file, shared output, exit codes, wiring."""
