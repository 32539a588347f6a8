"""The embedded engine: a workload, a two-tier prefix cache, a clock and a step-time model."""
