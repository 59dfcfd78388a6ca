"""The benchmark in a notebook: compare optimizers on data in memory, look at finished results.

The last package of the benchmark beside `cli`: it runs studies and reads their stores.
"""
