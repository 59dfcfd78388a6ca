"""Provide the commands of the analyses, one module each.

Imports `analyses` and `cli`. Start reading at `landscape`.
"""
