"""The command line: `gpuwire serve`, `devices`, `ping`, `bench`, `tune`, `token`, `version`."""
