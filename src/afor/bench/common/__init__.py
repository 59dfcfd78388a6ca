"""Provide what every package of the benchmark needs: errors, files, seeds, devices.

Imports nothing of the benchmark. Start reading at `errors`.
"""
