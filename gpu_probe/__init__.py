"""The only room that imports torch: start-up smoke allocation, device memory, measuring."""
