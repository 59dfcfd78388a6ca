"""How numbers are written in tables and figures."""

import math


def mean_sd_text(mean: float, sd: float) -> str:
    """Write a mean with its SD, where there is one.

    >>> mean_sd_text(62.941, 7.25)
    '62.94±7.25'
    """
    return f"{mean:.2f}" if math.isnan(sd) else f"{mean:.2f}±{sd:.2f}"


def signed(value: float) -> str:
    """Write a difference with its sign.

    >>> signed(-0.5)
    '−0.50'
    """
    return f"{value:+.2f}".replace("-", "−")


def p_text(p: float) -> str:
    """Write a p-value with enough digits and never as zero.

    >>> p_text(0.0119), p_text(2**-32)
    ('0.012', '2.3e-10')
    """
    if math.isnan(p):
        return "–"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}".replace("e-0", "e-")


def share_text(share: float) -> str:
    """Write a share in percent, with two digits that say something where it is small.

    >>> share_text(0.9304), share_text(0.00023), share_text(0.0)
    ('93.0 %', '0.023 %', '0 %')
    """
    if math.isnan(share):
        return "–"
    percent = 100 * share
    return f"{percent:.1f} %" if percent >= 1 else f"{percent:.2g} %"
