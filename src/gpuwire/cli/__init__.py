"""The command line: `gpuwire serve`, `devices`, `ping`, `token`, `version`."""
