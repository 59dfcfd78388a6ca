"""Readers of file formats that check every length: EDF, GDF, MATLAB 5, pickles of arrays.

Imports `common`. Start reading at `edf.read_edf`.
"""
