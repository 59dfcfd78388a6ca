"""Read EEG recordings, prepare windows with labels and subjects, and split the subjects.

`dataset` says what a data set is, `datasets` and `formats` read files, `preparation` makes trials
of them, `window_source` serves windows, `splits` divides the subjects. Imports `common`. Start
reading at `preparation.loading.open_windows`.
"""
