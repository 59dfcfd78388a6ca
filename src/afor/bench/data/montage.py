"""Interpret the names of channels: positions of 10-10 electrodes, and what is not EEG."""

import re

from afor.bench.common.errors import ConfigError

# Rows from front (+1) to back (-1) of a unit head.
ROW_Y = {
    "Fp": 0.95, "AF": 0.75, "F": 0.5, "FT": 0.25, "FC": 0.25, "T": 0.0, "C": 0.0,
    "TP": -0.25, "CP": -0.25, "P": -0.5, "PO": -0.75, "O": -0.95, "I": -1.1,
}  # fmt: skip
COLUMN_STEP = 0.22  # from one column to the next on the middle row
ROW_NARROWING = 0.55  # how much rows shrink towards the front and the back
# The words for what is recorded beside EEG: many formats do not store the type of a channel, and
# MNE takes such channels of EDF files for EEG.
OTHER_SIGNALS = re.compile(
    r"(?<![a-z])(ecg|ekg|emg|eog|heog|veog|eogl|eogr|eogv|eogh|loc|roc|e[12]-[am][12]|gsr|eda|scr|ppg|bvp"
    r"|plet\w*|exg\w*|erg\d*|resp\w*|rsp|belt|flow|airflow|thorax|abdomen|abdo|chest|snore|temp\w*|spo2|sao2|hr"
    r"|pulse|acc\w*|gyro\w*|trig\w*|trg|sti|stim\w*|status|marker\w*|event\w*|photo\w*|aux\w*"
    r"|misc\w*|emg\w*|eog\w*|ecg\w*|ekg\w*|dc\d*)(?![a-z])",
    re.IGNORECASE,
)


def tidy_name(name: str) -> str:
    """Return an electrode's name in the usual spelling: ``Fcz.`` becomes ``FCz``.

    >>> [tidy_name(name) for name in ("Fcz.", "C3..", "Fp1.", "Af7.", "T10.")]
    ['FCz', 'C3', 'Fp1', 'AF7', 'T10']
    """
    upper = name.strip().rstrip(".").upper()
    if upper.startswith("FP"):
        upper = "Fp" + upper[2:]
    return upper[:-1] + "z" if upper.endswith("Z") else upper


def electrode_xy(name: str) -> tuple[float, float]:
    """Return the position (right, front) of an electrode on a unit head; ``-A2`` etc. is ignored.

    >>> electrode_xy("Cz"), electrode_xy("C4")[0] > 0 > electrode_xy("O1-M2")[1]
    ((0.0, 0.0), True)
    """
    match = re.fullmatch(
        r"([A-Za-z]+?)(z|[0-9]{1,2})", tidy_name(re.split(r"[-_ ]", name.strip())[0])
    )
    if match is None or match[1] not in ROW_Y:
        raise ConfigError(f"{name!r} is no electrode of the 10-10 system, such as C3, FCz or O2.")
    y = ROW_Y[match[1]]
    if match[2] == "z":
        return 0.0, y
    number = int(match[2])
    side, column = (1, number // 2) if number % 2 == 0 else (-1, (number + 1) // 2)
    return side * column * COLUMN_STEP * (1 - ROW_NARROWING * abs(y)), y


def is_eeg_name(name: str) -> bool:
    """Return False for a name of something else: heart, eyes, muscles, breathing, triggers.

    >>> [name for name in ("Fp1", "ECG ECG", "EEG Cz-A1", "EOG left", "VEOG", "Status", "T7")
    ...  if is_eeg_name(name)]
    ['Fp1', 'EEG Cz-A1', 'T7']
    >>> is_eeg_name("E12"), is_eeg_name("E1-M2")  # an electrode of an EGI net, an eye of ISRUC
    (True, False)
    """
    return OTHER_SIGNALS.search(name) is None
