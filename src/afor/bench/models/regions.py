"""Brain regions: which electrodes belong together, decided by their names."""

import re
from collections.abc import Sequence

from afor.bench.common.errors import ConfigError

Regions = tuple[tuple[str, ...], ...]


def _table(text: str) -> Regions:
    return tuple(tuple(region.split()) for region in text.split("|"))


# The regions of the three data sets; left, middle and right of HSLT's (Wang 2022) head map.
DEAP_REGIONS = _table(
    "Fp1 AF3 AF4 Fp2 | F7 F3 Fz F4 F8 | FC5 T7 CP5 | FC1 C3 Cz C4 FC2 | FC6 T8 CP6 | "
    "P7 P3 PO3 | CP1 Pz CP2 | P8 P4 PO4 | O1 Oz O2"
)
BCI2A_REGIONS = _table(
    "Fz FC1 FCz FC2 | FC3 C5 C3 CP3 | C1 Cz C2 | FC4 C4 C6 CP4 | CP1 CPz CP2 | P1 Pz P2 POz"
)
ISRUC_REGIONS = _table("F3 F4 | C3 C4 | O1 O2")
_TABLES = (DEAP_REGIONS, BCI2A_REGIONS, ISRUC_REGIONS)

_OLD_NAMES = {"T3": "T7", "T4": "T8", "T5": "P7", "T6": "P8"}
_SMALLEST_REGION = 2  # a region of one electrode has nothing to attend to


def region_indices(
    channel_names: Sequence[str], regions: Sequence[Sequence[str]] | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return every region as positions in ``channel_names``, whatever their order.

    Without ``regions``, the three data sets get their published tables and every other montage
    regions from the 10-05 positions of its names.

    >>> region_indices(["O2", "C3", "F4", "F3", "C4", "O1"])
    ((3, 2), (1, 4), (5, 0))
    """
    if regions is not None and {n for region in regions for n in region} <= {*channel_names}:
        return _indices(channel_names, regions)  # spelled as in the data: any names will do
    names = [canonical_name(name) for name in channel_names]
    if regions is None:
        known = (table for table in _TABLES if {n.upper() for r in table for n in r} == {*names})
        regions = next(known, None) or derive_regions(channel_names)
    return _indices(names, [[canonical_name(name) for name in region] for region in regions])


def _indices(names: Sequence[str], regions: Sequence[Sequence[str]]) -> tuple[tuple[int, ...], ...]:
    _check_partition(regions, names)
    return tuple(tuple(names.index(name) for name in region) for region in regions)


def canonical_name(name: str) -> str:
    """Return an electrode's 10-05 name in capitals: no reference, no dots, no old label.

    >>> canonical_name("Fc5."), canonical_name("C3-M2"), canonical_name("EEG T3")
    ('FC5', 'C3', 'T7')
    """
    bare = re.sub(r"^EEG[\s-]+", "", name.strip().upper())
    bare = re.split(r"[-:_/]", bare)[0].strip(". ")
    return _OLD_NAMES.get(bare, bare)


def derive_regions(channel_names: Sequence[str]) -> Regions:
    """Group any 10-05 montage around the nine regions of the DEAP table, left like right.

    An electrode joins the region whose centre is nearest; electrodes on the midline join only
    regions that straddle it. A region left with one electrode is dissolved, together with its
    mirror image, into its neighbours.
    """
    places = electrode_positions()
    names = {name: canonical_name(name) for name in channel_names}
    unknown = [name for name in channel_names if names[name] not in places]
    if unknown:
        raise ConfigError(
            f"Regions follow electrode names, and these are not in the 10-05 system: "
            f"{', '.join(unknown)}. Rename the channels, or set regions to lists of channel names."
        )
    centres = _region_centres(places)
    while True:
        members: dict[str, list[str]] = {label: [] for label in centres}
        for name in channel_names:
            members[_nearest(places[names[name]], centres)].append(name)
        small = {label for label, found in members.items() if len(found) < _SMALLEST_REGION}
        small |= {_mirror_label(label) for label in small}
        if not small:
            return tuple(tuple(members[label]) for label in centres)
        if len(small) == len(centres):
            return (tuple(channel_names),)
        # The emptiest first: the electrodes it gives away may save its neighbour. Of equals the
        # first in the table: the order of a set differs from process to process.
        candidates = [label for label in centres if label in small]
        worst = min(candidates, key=lambda label: len(members[label]))
        for label in {worst, _mirror_label(worst)}:
            del centres[label]


def _check_partition(regions: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """Raise unless every electrode stands in exactly one region and no region is empty."""
    placed = [name for region in regions for name in region]
    faults = {
        "twice in the data": sorted({name for name in names if names.count(name) > 1}),
        "more than once": sorted({name for name in placed if placed.count(name) > 1}),
        "in no region": sorted({*names} - {*placed}),
        "in a region but not in the data": sorted({*placed} - {*names}),
    }
    for fault, found in faults.items():
        if found:
            raise ConfigError(
                f"Regions must hold every channel exactly once; {fault}: {', '.join(found)}."
            )
    if not all(regions):
        raise ConfigError("Regions must hold every channel exactly once; one region is empty.")


_Place = tuple[float, float, float]


def electrode_positions() -> dict[str, _Place]:
    """Return the 10-05 positions in metres, left and right made exact mirror images."""
    import mne  # slow to import, and only montages without a table come here

    # One montage under the names of newer and older MNE.
    name = "colin27_1005"
    if name not in mne.channels.get_builtin_montages():
        name = "standard_1005"
    montage = mne.channels.make_standard_montage(name).get_positions()["ch_pos"]
    raw = {name.upper(): tuple(float(value) for value in p) for name, p in montage.items()}
    places: dict[str, _Place] = {}
    for name, (x, y, z) in raw.items():
        twin = raw.get(_mirror_name(name))
        if twin is None:
            continue
        if _mirror_name(name) == name:
            places[name] = (0.0, y, z)
        else:
            places[name] = ((x - twin[0]) / 2, (y + twin[1]) / 2, (z + twin[2]) / 2)
    return places


def _mirror_name(name: str) -> str:
    """Return the electrode on the other side: odd numbers are left, even ones right."""
    match = re.fullmatch(r"(\D+)([0-9]{1,2})(H?)", name)
    if match is None:
        return name
    stem, number, half = match[1], int(match[2]), match[3]
    return f"{stem}{number + 1 if number % 2 else number - 1}{half}"


def _region_centres(places: dict[str, _Place]) -> dict[str, _Place]:
    """Return the mean position of each DEAP region, labelled by its electrodes."""
    centres = {}
    for region in DEAP_REGIONS:
        upper = [name.upper() for name in region]
        points = [places[name] for name in upper]
        centre = tuple(sum(axis) / len(points) for axis in zip(*points, strict=True))
        straddles = {_mirror_name(name) for name in upper} == {*upper}
        centres[" ".join(sorted(upper))] = (0.0 if straddles else centre[0], centre[1], centre[2])
    return centres


def _mirror_label(label: str) -> str:
    return " ".join(sorted(_mirror_name(name) for name in label.split()))


def _nearest(place: _Place, centres: dict[str, _Place]) -> str:
    """Return the nearest region; one on the midline, or on the electrode's own side."""

    def distance(label: str) -> float:
        return sum((a - b) ** 2 for a, b in zip(place, centres[label], strict=True))

    allowed = [
        label for label, centre in centres.items() if centre[0] == 0.0 or centre[0] * place[0] > 0.0
    ]
    return min(allowed or centres, key=distance)
