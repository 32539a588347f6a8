"""Names of torchvision.transforms.v2."""

from torchvision.nothing import names_of
from torchvision.transforms import InterpolationMode

__all__ = ["InterpolationMode"]
__getattr__ = names_of(__name__)
