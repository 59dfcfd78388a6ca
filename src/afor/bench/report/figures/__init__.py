"""Draw the figures of results and training curves with Matplotlib.

`style` holds sizes and colours; the other modules draw one family of figures each. Imports
`stats`. Start reading at `results.gain_figure`.
"""
