"""The command line: `gpuwire serve`, `devices`, `ping`, `tune`, `token`, `version`."""
