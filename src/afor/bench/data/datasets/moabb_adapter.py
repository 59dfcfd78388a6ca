"""Read any data set of MOABB, as ``moabb:<Name>``: MOABB downloads and cuts it into trials.

open_windows("moabb:BNCI2014_001", options={"paradigm_options": {"fmin": 4, "fmax": 40}})
"""

from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import Field

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.common.suggest import did_you_mean
from afor.bench.data.dataset import Dataset, DatasetInfo, DataSettings
from afor.bench.data.datasets.recordings import MICROVOLTS_PER_VOLT
from afor.bench.data.recording import Recording

# Paradigm of a MOABB data set → the class that cuts it into trials.
PARADIGMS = {"imagery": "MotorImagery", "p300": "P300", "ssvep": "SSVEP", "cvep": "CVEP"}


class MoabbSettings(DataSettings):
    """Options; those of the data set and of the paradigm are passed on to MOABB as they are."""

    paradigm: str = "auto"
    paradigm_options: dict[str, Any] = Field(default_factory=dict)
    dataset_options: dict[str, Any] = Field(default_factory=dict)


class MoabbDataset(Dataset[MoabbSettings]):
    """A data set of MOABB by its class name; raises ConfigError with the nearest one."""

    settings = MoabbSettings
    needs_root = False

    def __init__(self, name: str) -> None:
        moabb = _import_moabb()
        if not _is_class(moabb.datasets, name, moabb.datasets.base.BaseDataset):
            names = [entry for entry in dir(moabb.datasets) if entry[0].isupper()]
            hint = did_you_mean(name, names, prefix="moabb:")
            raise ConfigError(f"MOABB {moabb.__version__} has no data set {name!r}.{hint}")
        self.name = name
        self.info = DatasetInfo(
            name=f"moabb:{name}",
            title=f"{name} through MOABB {moabb.__version__}",
            task="as the data set's MOABB paradigm",
            licence="see the data set's page at https://moabb.neurotechx.com",
            where="MOABB downloads it",
            citation="the data set's own, and MOABB: Jayaram and Barachant, J. Neural Eng., 2018",
            shape="as MOABB gives it",
            layout="MOABB's own folder (set by the environment variable MNE_DATA)",
            steps="MOABB fetches it when it is first read",
        )

    def find(self, root: Path, settings: MoabbSettings) -> tuple[str, ...]:
        """Return the subjects that MOABB lists."""
        return tuple(map(str, _make_dataset(self.name, settings).subject_list))

    def load(self, root: Path, subject: str, settings: MoabbSettings) -> Recording:
        """Read one subject with MOABB and return it as a recording."""
        dataset = _make_dataset(self.name, settings)
        paradigm = _make_paradigm(dataset, settings)
        number = next(s for s in dataset.subject_list if str(s) == subject)
        try:
            epochs, classes, _ = paradigm.get_data(dataset, subjects=[number], return_epochs=True)
            signal = epochs.get_data(copy=False) * MICROVOLTS_PER_VOLT
        except Exception as error:
            raise DataError(
                f"{self.info.name} subject {subject}: MOABB could not read it "
                f"({type(error).__name__}: {error})."
            ) from error
        return Recording.of_trials(
            subject=subject,
            trials=signal,
            labels=[str(label) for label in classes],
            channel_names=epochs.ch_names,
            rate_hz=epochs.info["sfreq"],
            class_names=sorted(paradigm.used_events(dataset)),
            dataset=self.info.name,
        )


def _make_dataset(name: str, settings: MoabbSettings) -> Any:
    try:
        return getattr(_import_moabb().datasets, name)(**settings.dataset_options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"moabb:{name}: dataset_options are not accepted: {error}") from None


def _make_paradigm(dataset: Any, settings: MoabbSettings) -> Any:
    paradigms = _import_moabb().paradigms
    name = settings.paradigm
    if name == "auto":
        name = PARADIGMS.get(dataset.paradigm, "")
    if not _is_class(paradigms, name, paradigms.base.BaseParadigm):
        raise ConfigError(
            f"moabb: no paradigm {settings.paradigm!r} for a data set of the kind "
            f"{dataset.paradigm!r}; set 'paradigm' to a class of moabb.paradigms, such as "
            f"{', '.join(PARADIGMS.values())}."
        )
    options = dict(settings.paradigm_options)
    if name == "MotorImagery":
        options = {"n_classes": len(dataset.event_id), **options}
        options.setdefault("events", list(dataset.event_id)[: options["n_classes"]])
    try:
        return getattr(paradigms, name)(**options)
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"moabb: paradigm_options are not accepted: {error}") from None


def _is_class(module: ModuleType, name: str, base: type) -> bool:
    """Return True if a name in a module of MOABB is a subclass of `base`."""
    value = getattr(module, name, None)
    return isinstance(value, type) and issubclass(value, base)


def _import_moabb() -> ModuleType:
    try:
        import moabb
        import moabb.datasets
        import moabb.paradigms
    except ImportError as error:
        raise ConfigError(
            f"Data sets named moabb:… need MOABB ({error}). Install it: pip install 'afor[moabb]'."
        ) from None
    module: ModuleType = moabb
    return module
