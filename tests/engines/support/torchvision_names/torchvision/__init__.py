"""The names of torchvision, for engines that import it at their start; using one is an error."""

from torchvision import io, ops, transforms

__all__ = ["io", "ops", "transforms"]
__version__ = "0.28.0+names"
