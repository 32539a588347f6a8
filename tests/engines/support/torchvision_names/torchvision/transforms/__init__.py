"""Names of torchvision.transforms."""

from enum import Enum

from torchvision.nothing import names_of


class InterpolationMode(Enum):
    """How pixels would be found between pixels."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


__getattr__ = names_of(__name__)
