"""Read file formats with every length checked: EDF, GDF, MATLAB 5, pickles of arrays.

Imports `common`. Start reading at `edf.read_edf`.
"""
