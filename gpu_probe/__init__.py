"""The only room that imports torch: start-up smoke allocation, device memory, measuring.

Importing this package, or `device` and `smoke` in it, imports no torch; that happens once a CUDA device is asked for.
"""
