"""Provide the commands of the analyses: of a step, of runs trained again, of stored runs.

Imports `analyses` and `cli`. Start reading at `replays.landscape`.
"""
