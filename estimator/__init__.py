"""Bytes of temporary device buffers for a prefill batch, computed on the CPU."""
