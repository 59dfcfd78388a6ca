"""Commands that list what there is: data sets, backbones, optimizers, and this machine.

Start reading at `data.list_datasets`.
"""
