"""HSLT as the AFOR authors released it: raw samples as tokens, regions by channel position."""

from itertools import accumulate, pairwise

from torch import nn

from afor.bench.common.errors import ConfigError
from afor.bench.models.hslt import HSLT, RegionEncoder
from afor.bench.models.input_shape import InputShape
from afor.bench.models.settings import Dropout, Form, check_choice

# By number of electrodes: the sizes of the regions, which are consecutive channels, and the number
# of tokens of an encoded region, its class token included.
REGION_SIZES: dict[int, tuple[tuple[int, ...], int]] = {
    6: ((1, 1, 1, 1, 1, 1), 2),
    22: ((2, 2, 2, 3, 2, 3, 3, 2, 3), 4),
    32: ((4, 5, 3, 5, 3, 3, 3, 3, 3), 4),
    62: ((5, 9, 6, 7, 6, 8, 4, 7, 10), 5),
}


class HSLTAuthors(HSLT):
    """Classify windows with the HSLT that the AFOR authors released.

    Every electrode's token is a linear map of its raw samples: there is no convolution. Regions
    are runs of channels in the order of the data, by count alone. A second GELU follows the second
    layer of every MLP, and class tokens and positions start as N(0, 1).

    >>> shape = InputShape.unnamed(22, samples=250, rate_hz=250, classes=4)
    >>> len(HSLTAuthors(shape).regions)
    9

    Args:
        shape: Shape of a window, with 6, 22, 32 or 62 channels.
        dropout: Probability of dropping an attention weight or an element of an MLP.
        form: How the forward pass is computed, as for :class:`HSLT`.

    Raises:
        ConfigError: For another number of channels.
    """

    def __init__(self, shape: InputShape, *, dropout: Dropout = 0.4, form: Form = "fast") -> None:
        nn.Module.__init__(self)
        check_choice("HSLT of the AFOR authors", "form", form, Form)
        if shape.channels not in REGION_SIZES:
            raise ConfigError(
                f"HSLT of the AFOR authors has regions for {', '.join(map(str, REGION_SIZES))} "
                f"channels, found {shape.channels}. Use hslt, which takes any montage."
            )
        self.form = form
        self.tokenizer = nn.Identity()
        sizes, kept_tokens = REGION_SIZES[shape.channels]
        bounds = pairwise(accumulate(sizes, initial=0))
        indices = tuple(tuple(range(start, stop)) for start, stop in bounds)
        self._build(shape.samples, indices, kept_tokens, dropout, shape.classes, second_gelu=True)
        tokens = [self.class_token, self.position]
        for region in self.regions:
            assert isinstance(region, RegionEncoder)
            tokens += [region.class_token, region.position]
        for token in tokens:
            nn.init.normal_(token)
