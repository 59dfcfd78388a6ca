"""What a comparison assumes of a run: everything that decides its result but the optimizer entry.

A protocol is a flat dictionary of texts with the keys of a study: `max_epochs`, `lr`,
`data.band_hz`, the fingerprint of the data, a digest of the subjects of the split. Values at their
defaults are left out. A value that an optimizer entry sets for itself, such as its own learning
rate, belongs to the method: it is `own`, which agrees with every other.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from afor.bench.study.schema import BackboneEntry, OptimizerEntry, Study, scored_trials
from afor.bench.training.run_spec import Training

RunProtocol = Mapping[str, str]

OWN = "own"  # the value of a setting that belongs to the method
SEARCHED = "searched"  # each optimizer has the learning rate that a search found for it
UNKNOWN = "protocol"  # the only key of runs from a file that does not record their protocol
DATA_KIND = "data_kind"  # stand-in, synthetic or simulated; left out for recorded data
SCORED = "scored"  # trials where methods have windows of their own; left out for windows
KIND_NOTES = {  # what is said of data that are not recorded
    "stand-in": "synthetic stand-ins, not the recordings",
    "synthetic": "computed subjects, not recordings of people",
    "simulated": "simulated results, no network was trained",
}
# Tensors of our networks that `afor models NAME --redundant` finds.
REDUNDANT = {
    "eegnet": ("temporal_norm.weight", "temporal_norm.bias"),
    "eegnet_authors": ("temporal_norm.weight", "temporal_norm.bias"),
    "acrnn": ("lstm.weight_hh_l0", "lstm.weight_hh_l1"),
    "acrnn_authors": ("lstm.weight_hh_l0", "lstm.weight_hh_l1"),
    "nsal_dgat": ("first.scale.weight", "second.scale.weight"),
    "nsal_dgat_authors": ("first.scale.weight", "second.scale.weight"),
}
DIGESTS = ("data.fingerprint", "split")  # named last: a setting that differs says more
DEFAULTS = {
    "seed": "0",
    "threads": "1",
    "device": "cpu",
    "code": "1",
    DATA_KIND: "recorded",
    SCORED: "windows",
    UNKNOWN: "recorded",
}
MAX_SHOWN = 60  # characters of a value in a message
_PLAIN = re.compile(r"[\w.:+/,\[\]()-]{1,60}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def protocol_of(
    study: Study,
    backbone: BackboneEntry,
    optimizer: OptimizerEntry,
    spec: Mapping[str, Any],
    *,
    data: Mapping[str, Any],
    rate: float | str,
) -> dict[str, str]:
    """Return the protocol of a run.

    `data` has the kind of its data, their fingerprint as the study cuts them, and the options of
    its data set that are not at their defaults; `rate` is the learning rate, `OWN` or `SEARCHED` if
    it belongs to the method.
    """
    training, network, windows = dict(spec["training"]), spec["backbone"], spec["data"]
    defaults, split = Training(), spec["split"]
    if optimizer.clip_norm is not None:
        training["clip_norm"] = OWN
    if optimizer.adaptation_state is not None:
        training["adaptation"] = {**training["adaptation"], "state": OWN}
    training |= dict.fromkeys(optimizer.training, OWN)
    decay = study.training.weight_decay if optimizer.weight_decay is None else OWN
    values: dict[str, Any] = {
        DATA_KIND: data["kind"],
        SCORED: "trials" if scored_trials(study) else "windows",
        "lr": rate,
        **({} if decay == defaults.weight_decay else {"weight_decay": decay}),
        **{k: v for k, v in training.items() if v != getattr(defaults, k, None)},
        "seed": study.seed if optimizer.seed is None else OWN,
        "threads": spec["threads"],
        "device": spec["device"],
        "code": spec["code"],
        "trainer": spec.get("trainer", {}),
        "backbone": OWN
        if optimizer.backbone is not None
        else {
            **({"use": backbone.use} if backbone.use != backbone.name else {}),
            **backbone.settings,
            **{k: v for k, v in network.items() if k not in ("name", "settings", "source")},
        },
        "data": {
            **({"use": windows["reader"]} if windows["reader"] != windows["dataset"] else {}),
            **data["options"],
            **dict.fromkeys(optimizer.data.options(), OWN),
            "fingerprint": data["fingerprint"],
        },
        "split": [split["train"], split["validation"], split["test"]],
    }
    flat = {key: _text(value) for key, value in _flat(values)}
    return {key: text for key, text in flat.items() if text != DEFAULTS.get(key)}


@lru_cache
def unknown_protocol(file: str) -> RunProtocol:
    """Return the protocol of runs from a file that does not record it.

    >>> unknown_protocol("old runs.csv")
    {'protocol': 'not recorded in old runs.csv'}
    """
    return {UNKNOWN: f"not recorded in {file}"}


def protocol_text(protocol: RunProtocol) -> str:
    """Return a protocol as one line of a store or a file.

    >>> protocol_text({"lr": "0.001", "max_epochs": "3"})
    'lr=0.001; max_epochs=3'
    """
    return "; ".join(f"{key}={value}" for key, value in protocol.items())


@lru_cache(maxsize=1 << 16)
def read_protocol(text: str) -> RunProtocol:
    """Read what `protocol_text` wrote; equal texts give one object.

    >>> read_protocol("lr=0.001; max_epochs=3")["max_epochs"]
    '3'
    """
    pairs = (part.partition("=") for part in text.split("; ") if part)
    return {key: value for key, _, value in pairs}


@dataclass(frozen=True)
class Difference:
    """A setting in which protocols differ, and the value of each of them."""

    key: str
    values: tuple[str, ...]


def differences(protocols: Iterable[RunProtocol]) -> Iterator[Difference]:
    """Yield the settings in which protocols differ, those with readable values first.

    >>> [d.key for d in differences([{"lr": "own"}, {"lr": "0.1", "seed": "1"}, {"lr": "0.1"}])]
    ['seed']
    """
    distinct = list({id(protocol): protocol for protocol in protocols}.values())
    if len(distinct) < 2:
        return
    recorded = [protocol for protocol in distinct if UNKNOWN not in protocol]
    keys = dict.fromkeys(key for protocol in recorded for key in protocol)
    ordered = [UNKNOWN, *(k for k in keys if k not in DIGESTS), *(k for k in DIGESTS if k in keys)]
    for key in ordered:
        compared = distinct if key == UNKNOWN else recorded
        values = dict.fromkeys(setting(protocol, key) for protocol in compared)
        values.pop(OWN, None)
        if len(values) > 1:
            yield Difference(key, tuple(values))


def study_difference(one: Study, other: Study) -> Difference | None:
    """Return the first setting in which two studies differ, or None if their runs are the same.

    Names, descriptions and folders change no run.

    >>> from afor.bench.study.schema import load_study
    >>> demo = load_study("demo")
    >>> study_difference(demo, demo.model_copy(update={"seed": 3}))
    Difference(key='seed', values=('0', '3'))
    """
    ours, theirs = (dict(_flat(_by_name(study))) for study in (one, other))
    for key in dict.fromkeys([*ours, *theirs]):
        values = [_shown(flat.get(key)) for flat in (ours, theirs)]
        if values[0] != values[1]:
            return Difference(key, (values[0], values[1]))
    return None


def _by_name(study: Study) -> dict[str, Any]:
    """Return the content of a study, with the entries of its lists by their names."""
    content = study.model_dump(mode="json", exclude={"name", "description", "reference"})
    for section in ("datasets", "backbones", "optimizers"):
        entries = content[section]
        content[section] = {entry["name"]: {**entry, "root": None} for entry in entries}
    return content


def _shown(value: Any) -> str:
    text = "not set" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def setting(protocol: RunProtocol, key: str) -> str:
    """Return the value of a setting, its default where the protocol leaves it out."""
    if key in protocol:
        return protocol[key]
    if protocol.get(key.partition(".")[0]) == OWN:  # the whole table belongs to the method
        return OWN
    default = DEFAULTS.get(key) or getattr(Training(), key, None)
    return "not set" if default is None else _text(default)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(value: Any) -> str:
    """Return a value as a short text without separators; a long one as its digest."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    text = text.replace('"', "")
    if _SHA256.fullmatch(text):
        return text[:16]
    return text if _PLAIN.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[:16]


def pairing_notes(study: Study) -> list[str]:
    """Say what the methods of a study do not share; all have the splits and the order of seeds.

    >>> from afor.bench.study.schema import load_study
    >>> pairing_notes(load_study("demo"))
    []
    """
    notes = []
    networks = {entry.backbone.name for entry in study.optimizers if entry.backbone is not None}
    if networks:
        notes.append(
            f"Methods with different networks ({', '.join(sorted(networks))}) start from different "
            f"weights under the same seeds; they share splits and batches."
        )
    batches = {"batch_size", "order", "passes", "subjects_per_batch"}
    others = [entry.name for entry in study.optimizers if batches & set(entry.training)]
    if others:
        notes.append(f"{', '.join(others)}: other batches than the other methods, same splits.")
    if cut := [entry.name for entry in study.optimizers if entry.data.options()]:
        notes.append(
            f"{', '.join(cut)}: other windows of the same trials. All methods are scored per "
            f"trial, by the mean logits of its windows."
        )
    return notes


def redundant_notes(
    study: Study, find: Callable[[BackboneEntry], Sequence[str]] | None = None
) -> list[str]:
    """Name the tensors of a study's networks that cannot change what these compute in training.

    Args:
        study: The study.
        find: Finds the tensors of a network that is not ours; None leaves such networks out.

    >>> from afor.bench.study.schema import load_study
    >>> redundant_notes(load_study("demo"))[0].partition(" cannot")[0]
    'temporal_norm.weight, temporal_norm.bias of eegnet'
    """
    own = [entry.backbone for entry in study.optimizers if entry.backbone is not None]
    networks = own if len(own) == len(study.optimizers) else [*study.backbones, *own]
    tensors = {
        entry.use: REDUNDANT[entry.use] if entry.use in REDUNDANT else find(entry) if find else ()
        for entry in networks
    }
    listed = "; ".join(f"{', '.join(names)} of {use}" for use, names in tensors.items() if names)
    if not listed:
        return []
    default = study.training.hold_redundant
    holding = [m.name for m in study.optimizers if m.training.get("hold_redundant", default)]
    if len(holding) == len(study.optimizers):
        state = "they are held still."
    elif holding:
        state = f"{', '.join(holding)} hold them still, the other methods move them."
    else:
        state = "optimizers still move them. `training.hold_redundant = true` holds them still."
    return [f"{listed} cannot change what the network computes in training; {state}"]
