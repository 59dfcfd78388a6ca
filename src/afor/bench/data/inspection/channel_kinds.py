"""Tell by its name whether a channel is EEG: many formats do not store the type."""

import re

# The words for what is recorded beside EEG; MNE takes such channels of EDF files for EEG.
OTHER = re.compile(
    r"(?<![a-z])(ecg|ekg|emg|eog|heog|veog|eogl|eogr|eogv|eogh|loc|roc|e[12]|gsr|eda|scr|ppg|bvp"
    r"|pleth|resp\w*|rsp|belt|flow|airflow|thorax|abdomen|abdo|chest|snore|temp\w*|spo2|sao2|hr"
    r"|pulse|acc\w*|gyro\w*|trig\w*|trg|sti|stim\w*|status|marker\w*|event\w*|photo\w*|aux\w*"
    r"|misc\w*|emg\w*|eog\w*|ecg\w*|ekg\w*|dc\d*)(?![a-z])",
    re.IGNORECASE,
)


def is_eeg_name(name: str) -> bool:
    """Return False for a name of something else: heart, eyes, muscles, breathing, triggers.

    >>> [name for name in ("Fp1", "ECG ECG", "EEG Cz-A1", "EOG left", "VEOG", "Status", "T7")
    ...  if is_eeg_name(name)]
    ['Fp1', 'EEG Cz-A1', 'T7']
    """
    return OTHER.search(name) is None
