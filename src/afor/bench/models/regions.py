"""Group electrodes into brain regions by their names."""

import re
from collections.abc import Sequence
from typing import Any

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
    """Return every region as indices of ``channel_names``.

    Args:
        channel_names: Names of the electrodes, in any order.
        regions: Lists of channel names. None uses the published tables for the three data sets and
            the 10-05 positions of the electrodes for any other montage.

    Raises:
        ConfigError: A channel is in no region or in several, or its name is unknown.

    Example:
        >>> region_indices(["O2", "C3", "F4", "F3", "C4", "O1"])
        ((3, 2), (1, 4), (5, 0))
    """
    if regions is not None and {n for region in regions for n in region} <= {*channel_names}:
        return _indices(channel_names, regions)  # spelled as in the data: any names are valid
    names = [canonical_name(name) for name in channel_names]
    if regions is None:
        tables = (table for table in _TABLES if {n.upper() for r in table for n in r} == {*names})
        regions = next(tables, None) or derive_regions(channel_names)
    return _indices(names, [[canonical_name(name) for name in region] for region in regions])


def _indices(names: Sequence[str], regions: Sequence[Sequence[str]]) -> tuple[tuple[int, ...], ...]:
    _check_partition(regions, names)
    return tuple(tuple(names.index(name) for name in region) for region in regions)


def canonical_name(name: str) -> str:
    """Return an electrode's current 10-05 name in capitals, without reference and dots.

    >>> canonical_name("Fc5."), canonical_name("C3-M2"), canonical_name("EEG T3")
    ('FC5', 'C3', 'T7')
    """
    bare = re.sub(r"^EEG[\s-]+", "", name.strip().upper())
    bare = re.split(r"[-:_/]", bare)[0].strip(". ")
    return _OLD_NAMES.get(bare, bare)


def derive_regions(channel_names: Sequence[str]) -> Regions:
    """Group the electrodes of any 10-05 montage around the nine regions of DEAP, symmetrically.

    An electrode joins the region with the nearest centre; electrodes on the midline join only
    regions on the midline. A region with fewer than two electrodes is dissolved, together with its
    mirror image, into its neighbours.
    """
    positions = electrode_positions()
    names = {name: canonical_name(name) for name in channel_names}
    unknown = [name for name in channel_names if names[name] not in positions]
    if unknown:
        raise ConfigError(
            f"Regions follow electrode names, and these are not in the 10-05 system: "
            f"{', '.join(unknown)}. Rename the channels, or set regions to lists of channel names."
        )
    centres = _region_centres(positions)
    while True:
        members: dict[str, list[str]] = {label: [] for label in centres}
        for name in channel_names:
            members[_nearest(positions[names[name]], centres)].append(name)
        small = {
            label for label, electrodes in members.items() if len(electrodes) < _SMALLEST_REGION
        }
        small |= {_mirror_label(label) for label in small}
        if not small:
            return tuple(tuple(members[label]) for label in centres)
        if len(small) == len(centres):
            return (tuple(channel_names),)
        # Dissolve the smallest first: its electrodes may keep a neighbour above the limit. Of
        # equals, take the first in the table: the order of a set differs between processes.
        candidates = [label for label in centres if label in small]
        worst = min(candidates, key=lambda label: len(members[label]))
        for label in {worst, _mirror_label(worst)}:
            del centres[label]


def _check_partition(regions: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """Raise ConfigError unless every electrode is in exactly one region and no region is empty."""
    listed = [name for region in regions for name in region]
    faults = {
        "twice in the data": sorted({name for name in names if names.count(name) > 1}),
        "more than once": sorted({name for name in listed if listed.count(name) > 1}),
        "in no region": sorted({*names} - {*listed}),
        "in a region but not in the data": sorted({*listed} - {*names}),
    }
    for fault, wrong in faults.items():
        if wrong:
            raise ConfigError(
                f"Regions must hold every channel exactly once; {fault}: {', '.join(wrong)}."
            )
    if not all(regions):
        raise ConfigError("Regions must hold every channel exactly once; one region is empty.")


_Position = tuple[float, float, float]


def standard_montage() -> Any:
    """Return MNE's montage of the 10-05 system."""
    import mne  # slow to import, and needed only for montages without a table

    known = mne.channels.get_builtin_montages()
    name = "colin27_1005" if "colin27_1005" in known else "standard_1005"  # renamed in MNE 1.13
    return mne.channels.make_standard_montage(name)


def electrode_positions() -> dict[str, _Position]:
    """Return the 10-05 positions in metres, made exactly symmetric."""
    montage = standard_montage().get_positions()["ch_pos"]
    raw = {name.upper(): tuple(float(value) for value in p) for name, p in montage.items()}
    positions: dict[str, _Position] = {}
    for name, (x, y, z) in raw.items():
        mirrored = raw.get(_mirror_name(name))
        if mirrored is None:
            continue
        if _mirror_name(name) == name:
            positions[name] = (0.0, y, z)
        else:
            positions[name] = ((x - mirrored[0]) / 2, (y + mirrored[1]) / 2, (z + mirrored[2]) / 2)
    return positions


def _mirror_name(name: str) -> str:
    """Return the electrode on the other side: odd numbers are left, even ones right."""
    match = re.fullmatch(r"(\D+)([0-9]{1,2})(H?)", name)
    if match is None:
        return name
    stem, number, half = match[1], int(match[2]), match[3]
    return f"{stem}{number + 1 if number % 2 else number - 1}{half}"


def _region_centres(positions: dict[str, _Position]) -> dict[str, _Position]:
    """Return the mean position of each DEAP region, labelled by its electrodes."""
    centres = {}
    for region in DEAP_REGIONS:
        upper = [name.upper() for name in region]
        points = [positions[name] for name in upper]
        centre = tuple(sum(axis) / len(points) for axis in zip(*points, strict=True))
        straddles = {_mirror_name(name) for name in upper} == {*upper}
        centres[" ".join(sorted(upper))] = (0.0 if straddles else centre[0], centre[1], centre[2])
    return centres


def _mirror_label(label: str) -> str:
    return " ".join(sorted(_mirror_name(name) for name in label.split()))


def _nearest(position: _Position, centres: dict[str, _Position]) -> str:
    """Return the nearest region that is on the midline or on the side of the electrode."""

    def distance(label: str) -> float:
        return sum((a - b) ** 2 for a, b in zip(position, centres[label], strict=True))

    allowed = [
        label
        for label, centre in centres.items()
        if centre[0] == 0.0 or centre[0] * position[0] > 0.0
    ]
    return min(allowed or centres, key=distance)
