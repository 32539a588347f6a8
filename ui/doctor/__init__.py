"""What `glassgate doctor` looks at: the environment it runs in, and a run beside an engine."""
