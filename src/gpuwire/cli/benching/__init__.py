"""What `gpuwire bench` measures: `phases` do the work, `watching` asks the server meanwhile how
busy it is, and `limits` (pure) says what held each phase back."""
