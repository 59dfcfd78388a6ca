import edfio
import numpy as np
import pytest

from afor.bench.common.errors import DataError
from afor.bench.data.formats.edf import read_edf


@pytest.fixture
def path(tmp_path):
    """An EDF+ file by an independent writer: two signals of different rates, two annotations."""
    rng = np.random.default_rng(0)
    signals = [
        edfio.EdfSignal(
            rng.normal(0, 30, 2000), 200, label="F3-A2", physical_dimension="uV",
            physical_range=(-500, 500),
        ),
        edfio.EdfSignal(
            rng.normal(0, 0.1, 1000), 100, label="Chin", physical_dimension="mV",
            physical_range=(-1, 1),
        ),
    ]  # fmt: skip
    annotations = [edfio.EdfAnnotation(1.5, 2.0, "T1"), edfio.EdfAnnotation(4.0, None, "T2")]
    target = tmp_path / "night.rec"
    edfio.Edf(signals, annotations=annotations, data_record_duration=1).write(tmp_path / "n.edf")
    (tmp_path / "n.edf").rename(target)
    return target


def change(path, at, content):
    data = bytearray(path.read_bytes())
    data[at : at + len(content)] = content
    path.write_bytes(data)


def test_signals_rates_and_annotations_are_those_another_program_wrote(path):
    edf = read_edf(path)
    path.with_suffix(".edf").write_bytes(path.read_bytes())
    reference = edfio.read_edf(path.with_suffix(".edf"))
    assert edf.labels() == ("F3-A2", "Chin")
    assert (edf.rate_hz("F3-A2"), edf.rate_hz("Chin")) == (200, 100)
    np.testing.assert_allclose(edf.microvolts("F3-A2"), reference.signals[0].data, atol=1e-9)
    np.testing.assert_allclose(edf.microvolts("Chin"), 1e3 * reference.signals[1].data, atol=1e-9)
    assert [(a.onset_s, a.duration_s, a.text) for a in edf.annotations()] == [
        (1.5, 2.0, "T1"),
        (4.0, 0.0, "T2"),
    ]


HEADER_FAULTS = {
    "foreign magic": (0, b"\xffBIOSEMI", "no EDF file"),
    "zero signals": (252, b"0   ", "0 signals; accepted are 1 to 512"),
    "5000 signals": (252, b"5000", "5000 signals"),
    "negative signals": (252, b"-3  ", "-3 signals"),
    "header size": (184, b"512     ", "the header says it has 512 bytes"),
    "record duration 0": (244, b"0       ", "record duration of 0 s"),
    "record duration nan": (244, b"nan     ", "the record duration is 'nan'"),
    "records unknown": (236, b"-1      ", "was not closed"),
    "records zero": (236, b"0       ", "0 records"),
    "records huge": (236, b"99999999", "truncated, 10 of 99999999"),
    "records few": (236, b"9       ", "bytes more than its header announces"),
    "records text": (236, b"many    ", "the number of records is 'many'"),
    "gaps": (192, b"EDF+D", r"EDF\+D"),
    "digital range": (256 + 3 * 120, b"32767   ", "impossible range of signal 'F3-A2'"),
    "physical range": (256 + 3 * 104, b"500     ", "impossible range of signal 'F3-A2'"),
    "physical number": (256 + 3 * 104, b"1,5     ", "physical minimum of signal 'F3-A2' is '1,5'"),
    "samples": (256 + 3 * 216, b"0       ", "0 samples per record"),
    "samples huge": (256 + 3 * 216, b"99999999", "99999999 samples per record"),
}


@pytest.mark.parametrize(("at", "content", "message"), HEADER_FAULTS.values(), ids=HEADER_FAULTS)
def test_a_broken_header_is_refused_with_file_and_fault(path, at, content, message):
    change(path, at, content)
    with pytest.raises(DataError, match=message) as error:
        read_edf(path)
    assert "night.rec" in str(error.value)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 700])
def test_a_file_that_ends_inside_its_header_is_refused(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"empty|too few|ends inside its header"):
        read_edf(path)


def test_a_truncated_file_is_refused_unless_the_whole_records_are_wanted(path):
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(DataError, match="truncated, 8 of 10 records"):
        read_edf(path)
    edf = read_edf(path, allow_truncated=True)
    assert edf.microvolts("F3-A2").size == 8 * 200
    assert edf.notes == ("truncated: 8 of 10 records",)


def test_a_file_of_another_length_can_be_accepted_in_its_announced_part(path):
    original = path.read_bytes()
    path.write_bytes(original + b"more")
    with pytest.raises(DataError, match="4 bytes more than its header announces"):
        read_edf(path)
    edf = read_edf(path, allow_truncated=True)
    assert edf.microvolts("F3-A2").size == 2000
    assert edf.notes == ("4 bytes after the last record left out",)
    path.write_bytes(original)
    change(path, 236, b"-1      ")
    edf = read_edf(path, allow_truncated=True)
    assert edf.microvolts("F3-A2").size == 2000
    assert edf.notes == ("not closed: 10 records",)


def test_a_missing_a_doubled_and_a_unitless_signal_are_refused_by_name(path):
    with pytest.raises(DataError, match=r"no channel C4. Found: F3-A2, Chin"):
        read_edf(path).microvolts("C4")
    change(path, 256 + 16, b"F3-A2           ")
    with pytest.raises(DataError, match="channel F3-A2 occurs twice"):
        read_edf(path).microvolts("F3-A2")
    change(path, 256 + 16, b"Chin            ")
    change(path, 256 + 3 * 96 + 8, b"%       ")
    with pytest.raises(DataError, match="unit '%'"):
        read_edf(path).microvolts("Chin")


def test_a_broken_annotation_is_refused(path):
    data = path.read_bytes()
    path.write_bytes(data.replace(b"+1.5\x15", b"+1x5\x15"))
    with pytest.raises(DataError, match="annotation onset is '"):
        read_edf(path).annotations()
    path.write_bytes(data.replace(b"T1\x14\x00", b"T1T\x00"))
    with pytest.raises(DataError, match="broken EDF"):
        read_edf(path).annotations()


def test_a_missing_file_and_a_folder_are_data_errors(tmp_path):
    for path in (tmp_path / "no.edf", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            read_edf(path)
