"""Read EEG recordings, prepare windows with labels and subjects, and split the subjects.

Its parts, each of which imports those before it: `signal`, `montage` and `splits`; `recording`;
`formats`, which reads files; `dataset`, which says what a data set is; `datasets`, one
module each; `catalog` and `stand_ins`; `prepared`, the cache of trials; `window_source`; `loading`;
`inspection`. Imports `common`. Start reading at `loading.open_windows`.
"""
