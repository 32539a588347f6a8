"""What is decided, and the record of it."""
