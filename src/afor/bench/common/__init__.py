"""Shared helpers of all packages of the benchmark: errors, files, seeds, devices, module lookup.

Imports no other package of the benchmark. Start reading at `errors`.
"""
