"""Names of torchvision.io."""

from enum import Enum

from torchvision.nothing import names_of


class ImageReadMode(Enum):
    """How an image would be read."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


__getattr__ = names_of(__name__)
