"""Commands that list what there is: data sets, backbones, optimizers, and this machine.

Imports `data`, `models`, `optimizers` and `cli`. Start reading at `data.list_datasets`.
"""
