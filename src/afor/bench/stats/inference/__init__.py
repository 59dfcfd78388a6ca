"""Decide about one paired comparison: exact tests, intervals, margins, and their error rates.

Imports `stats.labels`. Start reading at `decisions.decide`.
"""
