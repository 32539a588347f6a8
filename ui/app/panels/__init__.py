"""The panels of the screen beside the batches, a file each; imported one by one, as they are shown."""
