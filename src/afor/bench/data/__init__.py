"""Read EEG recordings, prepare windows with labels and subjects, and split the subjects.

`datasets` and `formats` read files, `preprocessing` and `cache` prepare trials, `loading`
opens a `window_source`, `splits` divides the subjects. Imports `common`. Start reading at
`loading.open_windows`.
"""
