"""Synthetic subjects: EEG-like data with known parameters and an adjustable subject shift.

    trial = gain · (background + Σ rhythms: amplitude(class) · topography · oscillation) + noise

Every parameter of a subject is the population's value plus ``shift`` times a random deviation, so
with ``shift = 0`` all subjects are alike and with ``shift = 2`` each deviates twice as far, in the
same direction, as with ``shift = 1``. The model is described in docs/explanation/synthetic.md.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from afor.bench.data.dataset import Dataset, DatasetInfo, DataSettings, Samples, Words
from afor.bench.data.montage import electrode_xy
from afor.bench.data.recording import MAX_RATE_HZ, Recording

MODEL_VERSION = 1  # part of the fingerprint of the data: increase it if a number below changes

DEFAULT_WINDOW_S = {"imagery": 1.0, "sleep": 3.0, "emotion": 1.0}  # as in Sec. IV-A
DEFAULT_STRIDE_S = {"imagery": 0.5, "sleep": 3.0, "emotion": 1.0}

# Standard deviation of a subject's own deviation at shift = 1.
PEAK_SD_HZ = 0.8
POSITION_SD = 0.12  # head radius = 1
LOG_AMPLITUDE_SD = 0.35
LOG_GAIN_SD = 0.30
LOG_NOISE_SD = 0.30
SLOPE_SD = 0.15
EFFECT_SD = 0.30  # of how strongly a subject shows the classes, population = 1
LOG_LABEL_NOISE_SD = 0.5

BACKGROUND_UV = 9.0
BACKGROUND_SLOPE = 1.0  # power falls as 1 / f**slope
BACKGROUND_SPREAD = 0.5  # neighbouring electrodes see the same background
SENSOR_NOISE_UV = 2.0
TRIAL_LOG_AMPLITUDE_SD = 0.25  # from trial to trial, in every subject
STAY = 0.85  # probability that a sleep stage goes on for another epoch
LOWEST_HZ = 0.5

# Maximum number of samples of a subject: 0.5 GB. Drawing them takes about three times as much.
MAX_SAMPLES = 1 << 27


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


class SyntheticSettings(DataSettings):
    """Options of the synthetic subjects; ``shift`` scales the differences between them."""

    kind: Kind = "imagery"
    shift: Annotated[float, Field(ge=0, le=5)] = 1.0
    n_subjects: Annotated[int, Field(ge=1, le=1000)] = 20
    trials: Annotated[int, Field(ge=1, le=100_000)] | None = None
    n_classes: Annotated[int, Field(ge=2, le=5)] | None = None
    label_noise: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    effect: Annotated[float, Field(ge=0, le=100)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    session: Annotated[int, Field(ge=0, lt=2**31)] = 0  # other numbers: new trials, same subjects
    channels: Words | None = None
    rate_hz: Annotated[float, Field(ge=64, le=1000)] | None = None
    trial_s: Annotated[float, Field(gt=0, le=120)] | None = None
    window_samples: Samples
    stride_samples: Samples

    NOT_OF_TRIALS = DataSettings.NOT_OF_TRIALS | {"n_subjects"}

    @model_validator(mode="before")
    @classmethod
    def _fill_windows(cls, options: dict[str, Any]) -> dict[str, Any]:
        population = options.get("kind", "imagery")
        if not isinstance(population, str) or population not in RECIPES:
            return {"window_samples": 1, "stride_samples": 1, **options}
        rate = options.get("rate_hz")
        if not (isinstance(rate, int | float) and 0 < rate <= MAX_RATE_HZ):
            rate = RECIPES[population].rate_hz
        return {
            "window_samples": round(DEFAULT_WINDOW_S[population] * rate),
            "stride_samples": round(DEFAULT_STRIDE_S[population] * rate),
            **options,
        }

    @model_validator(mode="after")
    def _check_size(self) -> "SyntheticSettings":
        recipe = self.recipe()
        total = recipe.trials * len(recipe.channel_names) * recipe.trial_samples
        if not 1 <= total <= MAX_SAMPLES:
            raise ValueError(
                f"trials × channels × samples per trial is {total} for one subject, accepted are "
                f"1 to {MAX_SAMPLES}. Change trials, channels, trial_s or rate_hz."
            )
        return self

    def recipe(self) -> Recipe:
        """Return the population with the options in place of its own values."""
        recipe = RECIPES[self.kind]
        return replace(
            recipe,
            channel_names=self.channels or recipe.channel_names,
            class_names=recipe.class_names[: self.n_classes],
            class_weights=recipe.class_weights[: self.n_classes],
            rate_hz=self.rate_hz or recipe.rate_hz,
            trial_s=self.trial_s or recipe.trial_s,
            trials=self.trials or recipe.trials,
        )


@dataclass(frozen=True, eq=False)
class SubjectTruth:
    """The parameters of a synthetic subject; those of the population if ``shift`` is 0."""

    centres: FloatArray  # (rhythms, 2): where each rhythm sits, seen from above
    topographies: FloatArray  # (rhythms, channels): 1 at the centre, falling off around it
    peak_hz: FloatArray  # (rhythms,)
    amplitude_uv: FloatArray  # (rhythms,)
    gain: float
    noise_uv: float
    slope: float
    effect: float
    label_noise: float


def subject_names(settings: SyntheticSettings) -> tuple[str, ...]:
    """Return the names of the subjects, ``sub-01`` and so on."""
    width = max(2, len(str(settings.n_subjects)))
    return tuple(f"sub-{i + 1:0{width}d}" for i in range(settings.n_subjects))


def subject_truth(settings: SyntheticSettings, index: int) -> SubjectTruth:
    """Return the parameters of subject ``index``, counted from 0."""
    recipe = settings.recipe()
    rng = _generator(settings, index, stage=0)
    n, shift = len(recipe.rhythms), settings.shift
    # The draws do not depend on the shift, which only scales them.
    moved = rng.standard_normal((n, 2)) * POSITION_SD * shift
    peak, size = rng.standard_normal((2, n))
    gain, noise, slope, effect, flips = rng.standard_normal(5)
    electrodes = np.array([electrode_xy(name) for name in recipe.channel_names])
    centres = np.array([rhythm.xy for rhythm in recipe.rhythms]) + moved
    spread = np.array([rhythm.spread for rhythm in recipe.rhythms])
    peak_hz = np.array([rhythm.peak_hz for rhythm in recipe.rhythms])
    distance = np.linalg.norm(centres[:, None] - electrodes[None], axis=2)
    return SubjectTruth(
        centres=centres,
        topographies=np.exp(-0.5 * (distance / spread[:, None]) ** 2),
        # A peak deviates in proportion to its frequency: by PEAK_SD_HZ at 10 Hz.
        peak_hz=np.maximum(LOWEST_HZ, peak_hz + shift * PEAK_SD_HZ * (peak_hz / 10.0) * peak),
        amplitude_uv=np.array([r.amplitude_uv for r in recipe.rhythms])
        * np.exp(shift * LOG_AMPLITUDE_SD * size),
        gain=float(np.exp(shift * LOG_GAIN_SD * gain)),
        noise_uv=float(SENSOR_NOISE_UV * np.exp(shift * LOG_NOISE_SD * noise)),
        slope=float(BACKGROUND_SLOPE + shift * SLOPE_SD * slope),
        effect=float(settings.effect * max(0.0, 1 + shift * EFFECT_SD * effect)),
        label_noise=float(
            min(0.5, settings.label_noise * np.exp(shift * LOG_LABEL_NOISE_SD * flips))
        ),
    )


def load_subject(settings: SyntheticSettings, subject: str) -> Recording:
    """Return one synthetic subject as a recording."""
    index = subject_names(settings).index(subject)
    recipe, truth = settings.recipe(), subject_truth(settings, index)
    rng = _generator(settings, index, stage=1 + settings.session)
    true_labels = _draw_labels(recipe, rng)
    trials = _draw_trials(recipe, truth, true_labels, rng)
    wrong = rng.random(true_labels.size) < truth.label_noise
    drawn = rng.integers(len(recipe.class_names), size=true_labels.size)
    labels = np.where(wrong, drawn, true_labels)
    return Recording.of_trials(
        subject=subject,
        trials=trials,
        labels=labels,
        channel_names=recipe.channel_names,
        rate_hz=recipe.rate_hz,
        class_names=recipe.class_names,
        dataset="synthetic",
        notes=[f"{int((labels != true_labels).sum())} labels are wrong on purpose"],
    )


def _draw_labels(recipe: Recipe, rng: np.random.Generator) -> NDArray[np.int64]:
    n, n_classes = recipe.trials, len(recipe.class_names)
    weights = np.array(recipe.class_weights)
    weights = weights / weights.sum()
    if not recipe.is_sequence:
        # The nearest whole numbers to the expected counts, in random order.
        edges = np.round(np.cumsum(weights) * n).astype(int)
        return rng.permutation(np.repeat(np.arange(n_classes), np.diff(edges, prepend=0)))
    labels = rng.choice(n_classes, size=n, p=weights)
    goes_on = rng.random(n) < STAY
    for i in range(1, n):
        if goes_on[i]:
            labels[i] = labels[i - 1]
    return labels


def _draw_trials(
    recipe: Recipe,
    truth: SubjectTruth,
    true_labels: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    names, samples = recipe.channel_names, recipe.trial_samples
    freqs = np.fft.rfftfreq(samples, 1 / recipe.rate_hz)
    background = np.where(freqs >= LOWEST_HZ, np.maximum(freqs, LOWEST_HZ) ** (-truth.slope / 2), 0)
    width = np.array([r.width_hz for r in recipe.rhythms])[:, None]
    bumps = np.exp(-0.5 * ((freqs - truth.peak_hz[:, None]) / width) ** 2)
    shapes = np.concatenate([np.broadcast_to(background, (len(names), freqs.size)), bumps])
    shapes = shapes * (samples / np.sqrt(2 * (shapes**2).sum(axis=1, keepdims=True)))  # unit SD

    of_trial = rng.standard_normal((true_labels.size, len(recipe.rhythms)))
    log_amplitude = truth.effect * recipe.class_effect[true_labels]
    amplitude = truth.amplitude_uv * np.exp(log_amplitude + TRIAL_LOG_AMPLITUDE_SD * of_trial)
    background_mixing = BACKGROUND_UV * _smoothing(names)
    trials = np.empty((true_labels.size, len(names), samples), dtype=np.float32)
    for i in range(true_labels.size):  # one trial at a time fits into the cache
        parts = rng.standard_normal((2, len(shapes), freqs.size), dtype=np.float32)
        sources = np.fft.irfft((parts[0] + 1j * parts[1]) * shapes, n=samples, axis=-1)
        # (channels, sources)
        mixing = np.concatenate([background_mixing, truth.topographies.T * amplitude[i]], axis=1)
        noise = rng.standard_normal((len(names), samples), dtype=np.float32)
        trials[i] = truth.gain * (mixing @ sources) + truth.noise_uv * noise
    return trials


def _smoothing(names: tuple[str, ...]) -> FloatArray:
    xy = np.array([electrode_xy(name) for name in names])
    distance = np.linalg.norm(xy[:, None] - xy[None], axis=2)
    kernel = np.exp(-0.5 * (distance / BACKGROUND_SPREAD) ** 2)
    unit: FloatArray = kernel / np.linalg.norm(kernel, axis=1, keepdims=True)
    return unit


def _generator(settings: SyntheticSettings, index: int, stage: int) -> np.random.Generator:
    spawn_key = (list(RECIPES).index(settings.kind), index, stage)
    return np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=spawn_key))


class Synthetic(Dataset[SyntheticSettings]):
    """The synthetic subjects as a data set."""

    info = DatasetInfo(
        name="synthetic",
        title="Synthetic subjects",
        task="motor imagery (4 classes), sleep stages (5) or emotion (2)",
        licence="none needed: the data are computed",
        where="part of this package",
        citation="the manual, docs/explanation/synthetic.md",
        shape="imagery 12 channels at 128 Hz, sleep 6 at 100 Hz, emotion 12 at 128 Hz",
        paper_windows="as in the paper by kind: 1 s stride 0.5 s, 3 s, 1 s",
        layout="no files",
    )
    settings = SyntheticSettings
    version = MODEL_VERSION
    needs_root = False
    is_synthetic = True

    def find(self, root: Path, settings: SyntheticSettings) -> tuple[str, ...]:
        """Return the names of the subjects."""
        return subject_names(settings)

    def load(self, root: Path, subject: str, settings: SyntheticSettings) -> Recording:
        """Compute one subject."""
        return load_subject(settings, subject)


DATASET = Synthetic()
