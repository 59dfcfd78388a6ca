"""The populations of synthetic subjects: electrodes, rhythms, and the effect of each class."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["imagery", "sleep", "emotion"]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Rhythm:
    """A source of band-limited activity: its position, peak, width and amplitude."""

    name: str
    xy: tuple[float, float]
    spread: float  # radius of its topography, head radius = 1
    peak_hz: float
    width_hz: float
    amplitude_uv: float


@dataclass(frozen=True)
class Recipe:
    """One kind of recording: electrodes, classes, rhythms and the effect of each class on them."""

    channel_names: tuple[str, ...]
    class_names: tuple[str, ...]
    class_weights: tuple[float, ...]
    rhythms: tuple[Rhythm, ...]
    class_effect: FloatArray  # (classes, rhythms): added to log amplitude
    rate_hz: float
    trial_s: float
    trials: int
    is_sequence: bool  # labels come in sequences, like sleep stages

    @property
    def trial_samples(self) -> int:
        """Return the number of samples of a trial."""
        return round(self.trial_s * self.rate_hz)


# The area of the left hand is in the right hemisphere and vice versa.
LEFT_HAND, RIGHT_HAND, FOOT, FACE = (0.45, 0.0), (-0.45, 0.0), (0.0, 0.0), (0.0, 0.3)

IMAGERY = Recipe(
    channel_names=("FC3", "FCz", "FC4", "C5", "C3", "Cz", "C4", "C6", "CP3", "CPz", "CP4", "Pz"),
    class_names=("left", "right", "feet", "tongue"),
    class_weights=(1, 1, 1, 1),
    rhythms=(
        Rhythm("mu of the left hand area", LEFT_HAND, 0.30, 10.5, 1.0, 6.0),
        Rhythm("mu of the right hand area", RIGHT_HAND, 0.30, 10.5, 1.0, 6.0),
        Rhythm("mu of the foot area", FOOT, 0.28, 11.5, 1.0, 5.0),
        Rhythm("mu of the face area", FACE, 0.40, 10.0, 1.0, 4.0),
        Rhythm("beta of the left hand area", LEFT_HAND, 0.30, 20.0, 2.0, 3.0),
        Rhythm("beta of the right hand area", RIGHT_HAND, 0.30, 20.0, 2.0, 3.0),
        Rhythm("beta of the foot area", FOOT, 0.28, 22.0, 2.0, 3.0),
        Rhythm("occipital alpha", (0.0, -0.9), 0.45, 10.0, 1.0, 10.0),
    ),
    # Imagining a movement weakens the rhythm of its own area and strengthens the others a little.
    class_effect=np.array(
        [
            [-0.65, 0.10, 0.15, 0.0, -0.50, 0.10, 0.10, 0.0],
            [0.10, -0.65, 0.15, 0.0, 0.10, -0.50, 0.10, 0.0],
            [0.15, 0.15, -0.65, 0.0, 0.10, 0.10, -0.50, 0.0],
            [0.05, 0.05, 0.05, -0.70, 0.05, 0.05, 0.05, 0.0],
        ]
    ),
    rate_hz=128.0,
    trial_s=3.0,
    trials=96,
    is_sequence=False,
)

SLEEP = Recipe(
    channel_names=("F3", "C3", "O1", "F4", "C4", "O2"),
    class_names=("W", "N1", "N2", "N3", "REM"),
    # Scorer 1 of ISRUC-Sleep subgroup I: 20 979, 11 513, 28 287, 17 480, 11 928 epochs.
    class_weights=(0.233, 0.128, 0.314, 0.194, 0.132),
    rhythms=(
        Rhythm("delta", (0.0, 0.5), 0.90, 1.5, 0.7, 18.0),
        Rhythm("theta", (0.0, 0.0), 0.90, 5.5, 1.2, 8.0),
        Rhythm("alpha", (0.0, -0.9), 0.60, 9.5, 1.0, 8.0),
        Rhythm("spindles", (0.0, 0.0), 0.60, 13.5, 0.8, 5.0),
        Rhythm("beta", (0.0, 0.4), 0.80, 20.0, 3.0, 3.0),
    ),
    class_effect=np.array(
        [
            [-0.7, -0.4, 0.7, -0.6, 0.5],
            [-0.5, 0.2, 0.0, -0.4, 0.1],
            [0.2, 0.2, -0.4, 0.6, -0.1],
            [1.0, 0.2, -0.5, 0.0, -0.3],
            [-0.5, 0.4, -0.2, -0.5, 0.1],
        ]
    ),
    rate_hz=100.0,
    trial_s=12.0,
    trials=100,
    is_sequence=True,
)

EMOTION = Recipe(
    channel_names=("Fp1", "Fp2", "F3", "F4", "F7", "F8", "FC1", "FC2", "C3", "C4", "P3", "P4"),
    class_names=("low", "high"),
    class_weights=(0.44, 0.56),
    rhythms=(
        Rhythm("left frontal alpha", (-0.4, 0.55), 0.35, 10.0, 1.2, 6.0),
        Rhythm("right frontal alpha", (0.4, 0.55), 0.35, 10.0, 1.2, 6.0),
        Rhythm("parietal alpha", (0.0, -0.6), 0.50, 10.0, 1.0, 8.0),
        Rhythm("frontal theta", (0.0, 0.5), 0.40, 6.0, 1.0, 5.0),
    ),
    # High valence: more activity, so less alpha, on the left frontal side.
    class_effect=np.array([[0.16, -0.16, 0.0, 0.0], [-0.16, 0.16, 0.0, 0.0]]),
    rate_hz=128.0,
    trial_s=10.0,
    trials=40,
    is_sequence=False,
)

RECIPES: dict[Kind, Recipe] = {"imagery": IMAGERY, "sleep": SLEEP, "emotion": EMOTION}
