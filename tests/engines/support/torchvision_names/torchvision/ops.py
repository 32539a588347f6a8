"""Names of torchvision.ops."""

from torchvision.nothing import names_of

__getattr__ = names_of(__name__)
