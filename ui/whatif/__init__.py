"""What if: a recorded run replayed as it was and under other knobs. No terminal and no screen stands in here."""
