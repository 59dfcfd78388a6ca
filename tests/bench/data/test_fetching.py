"""Fetching against a server on loopback that misbehaves as servers do."""

import hashlib
import json
import re
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import AbsentError, ConfigError, DataError
from afor.bench.data import fetching
from afor.bench.data.datasets import bci2a, eegmat, physionet_mi, sleep_edf
from afor.bench.data.fetching import Fetch, RemoteFile, download, fetch_files, named_subjects
from afor.bench.data.loading import open_windows
from afor.bench.data.stand_ins import write_edf
from afor.bench.study import schema
from afor.bench.study.toml_io import toml_text
from recording_files import write_edf_plus

CONTENT = np.random.default_rng(0).bytes(100_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files` by path; `faults` are taken one per request before the file is sent."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.faults, self.asked = {}, [], []
        self.ranges, self.has_ranges = [], True  # the first byte that each request asks for

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server, path = self.server, self.path
        server.asked.append(path)
        fault = server.faults.pop(0) if server.faults else None
        content = server.files.get(path.removeprefix("/moved"))
        if fault == "silent":
            server.released.wait(20)
            return
        if isinstance(fault, int) or content is None:
            self.send_response(fault if isinstance(fault, int) else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if fault == "redirect":
            self.send_response(302)
            self.send_header("Location", f"{server.address}/moved{path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked and server.has_ranges else 0
        server.ranges.append(start)
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            last = len(content) - 1
            self.send_header("Content-Range", f"bytes {start}-{last}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if fault == "wrong bytes":
            content = content[:-1] + bytes([content[-1] ^ 1])
        rest = content[start:]
        half = len(rest) // 2
        self.wfile.write(rest[:half])
        if fault == "stall":
            server.released.wait(20)
        if fault == "slow":
            server.released.wait(0.3)
        if fault not in ("break off", "stall"):
            self.wfile.write(rest[half:])


@pytest.fixture
def server(monkeypatch):
    made = Server()
    made.released = threading.Event()
    made.files["/a.edf"] = CONTENT
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("AFOR_MIRROR", made.address)
    monkeypatch.setattr(fetching.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(fetching, "PIECE_BYTES", 100)
    yield made
    made.released.set()
    made.shutdown()
    made.server_close()


def remote(server, checksum=f"sha256:{SHA256}"):
    return RemoteFile("a.edf", f"{server.address}/a.edf", checksum)


@pytest.mark.parametrize("has_ranges", [True, False])
@pytest.mark.parametrize(
    "faults",
    [[], ["break off"], ["wrong bytes"], ["redirect"], [503, 503], ["break off", 500], ["slow"],
     ["stall"], ["break off", "wrong bytes"], ["break off", "redirect"]],
)  # fmt: skip
def test_a_file_comes_whole_in_spite_of_a_fault(server, tmp_path, monkeypatch, faults, has_ranges):
    monkeypatch.setattr(fetching, "TIMEOUT_S", (5, 1))
    server.faults, server.has_ranges = faults, has_ranges
    download(tmp_path, remote(server))
    assert [path.name for path in tmp_path.iterdir()] == ["a.edf"]
    assert (tmp_path / "a.edf").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("faults", "error", "words", "kept"),
    [
        (["break off"] * 3, AbsentError, "the transfer breaks off", 87_500),
        (["wrong bytes"] * 3, DataError, "not the published ones", 0),
        ([503] * 3, AbsentError, "the server answers 503", 0),
        ([404], AbsentError, "the server answers 404", 0),
        (["break off", 404], AbsentError, "the server answers 404", 50_000),
        (["silent"], AbsentError, "no answer in time", 0),
    ],
)
def test_what_cannot_be_fetched_leaves_no_file_and_one_sentence(
    server, tmp_path, monkeypatch, faults, error, words, kept
):
    monkeypatch.setattr(fetching, "TIMEOUT_S", (1, 1))
    server.faults = faults
    with pytest.raises(error, match=words):
        download(tmp_path, remote(server))
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes == ({"a.edf.part": kept} if kept else {})


def test_a_later_command_goes_on_where_the_transfer_stopped(server, tmp_path):
    server.faults = ["break off"] * 3
    with pytest.raises(AbsentError, match="the same command goes on"):
        download(tmp_path, remote(server))
    download(tmp_path, remote(server))
    assert server.ranges == [0, 50_000, 75_000, 87_500]
    assert (tmp_path / "a.edf").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_from_the_first_byte(server, tmp_path):
    server.has_ranges, server.faults = False, ["break off"]
    download(tmp_path, remote(server))
    assert server.ranges == [0, 0]


@pytest.mark.parametrize("part", [CONTENT[:-1] + b"x", CONTENT + b"longer", b"\0" * 500])
def test_a_part_of_other_bytes_is_fetched_anew(server, tmp_path, part):
    (tmp_path / "a.edf.part").write_bytes(part)
    download(tmp_path, remote(server))
    assert (tmp_path / "a.edf").read_bytes() == CONTENT
    assert server.ranges[-1] == 0


def test_a_large_file_comes_over_a_line_that_breaks_off_again_and_again(
    server, tmp_path, monkeypatch
):
    monkeypatch.setattr(fetching, "PROGRESS_BYTES", 1000)
    server.faults = ["break off"] * 6
    download(tmp_path, remote(server))
    assert len(server.ranges) == 7
    assert (tmp_path / "a.edf").read_bytes() == CONTENT


def test_without_a_checksum_a_transfer_that_breaks_off_is_noticed_and_starts_anew(server, tmp_path):
    server.faults = ["break off"] * 3
    with pytest.raises(AbsentError, match="breaks off"):
        download(tmp_path, remote(server, None))
    assert not (tmp_path / "a.edf").exists()
    download(tmp_path, remote(server, None))
    assert server.ranges == [0] * 4


def test_without_a_checksum_a_file_is_whole_only_if_it_was_fetched_here(server, tmp_path):
    file = remote(server, None)
    fetch = Fetch(files=lambda *_: [file])
    (tmp_path / "a.edf").write_bytes(CONTENT[:100])  # torn, by another program
    assert not file.is_whole(tmp_path)
    assert fetch_files(fetch, tmp_path, [], None) == [file]
    assert file.is_whole(tmp_path)
    assert fetch_files(fetch, tmp_path, [], None) == []
    (tmp_path / "a.edf").write_bytes(CONTENT[:-1])
    assert fetch_files(fetch, tmp_path, [], None) == [file]
    assert (tmp_path / "FETCHED.txt").read_text() == f"{SHA256}  a.edf\n"


def test_two_commands_do_not_write_one_file(server, tmp_path):
    fetch = Fetch(files=lambda *_: [remote(server)])
    with FileLock(tmp_path / ".fetching.lock"), pytest.raises(DataError, match="another process"):
        fetch_files(fetch, tmp_path, [], None)


@pytest.mark.timeout(30)
def test_without_a_network_one_sentence_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("AFOR_MIRROR", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for words in (["data", "get", "eegmmidb", "--subject", "1"], ["demo", "--people"]):
        answer = CliRunner().invoke(app, words)
        assert isinstance(answer.exception, AbsentError)
        assert "cannot be reached" in str(answer.exception)


def test_subjects_are_named_by_name_number_or_range():
    assert named_subjects(["1-3", "S002"], physionet_mi.SUBJECTS) == ["S001", "S002", "S003"]
    with pytest.raises(ConfigError, match="no subject '200'"):
        named_subjects(["200"], physionet_mi.SUBJECTS)


def eyes(seed):
    """Return the bytes of a run of rest in the format of EEGMMIDB."""
    signal = np.random.default_rng(seed).normal(0, 20, (64, 61 * 160))
    return signal, [(0.0, 61.0, "T0")]


@pytest.fixture
def eegmmidb(server, tmp_path, monkeypatch):
    """Serve ten people in the format of EEGMMIDB, with checksums as MNE has them."""
    checksums = {}
    for number in range(1, 11):
        for run in (1, 2):
            name = f"S{number:03d}/S{number:03d}R{run:02d}.edf"
            path = tmp_path / "made" / name
            signal, events = eyes(10 * number + run)
            write_edf_plus(path, physionet_mi.CHANNELS, signal, 160, events)
            server.files[f"/eegmmidb/1.0.0/{name}"] = path.read_bytes()
            checksums[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(physionet_mi, "_checksums", lambda: checksums)
    return server


def get(*words):
    return CliRunner().invoke(app, ["data", "get", *words])


def test_people_are_fetched_by_name_and_range_and_only_what_is_missing(eegmmidb, tmp_path):
    root = tmp_path / "root"
    dry = get("eegmmidb", "--subject", "1-10", "--root", str(root), "--dry-run")
    assert dry.exit_code == 0
    for words in ("10 subjects, 20 files, 20 of them to fetch, about 26 MB", "ODC-By", "Schalk"):
        assert words in dry.stdout
    assert eegmmidb.asked == []
    assert get("eegmmidb", "--subject", "1-10", "--root", str(root)).exit_code == 0
    assert len(eegmmidb.asked) == 20
    (root / "S003" / "S003R01.edf").write_bytes(b"torn")
    again = get("eegmmidb", "--subject", "1-10", "--root", str(root), "--json")
    assert json.loads(again.stdout)["missing"] == 0
    assert eegmmidb.asked[20:] == ["/eegmmidb/1.0.0/S003/S003R01.edf"]
    source = open_windows("physionet_mi", root, cache_dir=tmp_path / "cache")
    assert len(source.subjects) == 10
    assert source.kind == "recorded"


def test_the_demo_runs_on_people(eegmmidb, tmp_path, monkeypatch):
    content = tomllib.loads(schema.preset_text("demo-people"))
    content["training"]["max_epochs"] = 1
    content["optimizers"] = ["adam", "afor"]
    content["datasets"][0]["subjects"] = ["S001", "S002", "S003"]
    shorter = toml_text(content)
    monkeypatch.setattr(schema, "preset_text", lambda _name: shorter)
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, ["demo", "--people", "-j", "1"], catch_exceptions=False)
    assert answer.exit_code == 0
    assert "6 done (6 trained now)" in answer.stdout
    assert "Cite Schalk" in answer.stderr
    asked = len(eegmmidb.asked)
    assert asked == 6
    CliRunner().invoke(app, ["demo", "--people", "-j", "1"], catch_exceptions=False)
    assert len(eegmmidb.asked) == asked


def test_irregular_people_are_not_fetched_unless_they_are_asked_for(tmp_path):
    def dry(*words):
        answer = get("eegmmidb", "--root", str(tmp_path), "--dry-run", "--json", *words)
        return json.loads(answer.stdout)

    assert dry("--option", "task=imagery")["subjects"] == 105
    assert dry("--option", "task=fists_feet")["subjects"] == 106  # only run 8 of S104 is cut short
    assert dry()["subjects"] == 109
    assert dry("--option", "task=imagery", "--option", "include_irregular=true")["subjects"] == 109
    assert dry("--option", "task=imagery", "--subject", "100")["files"] == 6


def test_an_agreement_or_own_data_are_described_with_exit_code_3():
    for name, words in (("deap", "signed agreement"), ("isruc", "unrar"), ("folder", "your own")):
        answer = get(name)
        assert answer.exception.exit_code == 3
        assert words in str(answer.exception)
    assert "needs no files" in str(get("synthetic").exception)


def test_2a_comes_from_bnci_horizon_and_its_sums_are_kept(server, tmp_path, monkeypatch):
    monkeypatch.setattr(bci2a, "BNCI", f"{server.address}/001-2014")
    for name in ("A02T.mat", "A02E.mat"):
        server.files[f"/001-2014/{name}"] = name.encode() * 100
    assert get("bci2a", "--subject", "2", "--root", str(tmp_path / "root")).exit_code == 0
    assert (tmp_path / "root" / "A02E.mat").read_bytes() == b"A02E.mat" * 100
    assert "A02T.mat" in (tmp_path / "root" / "FETCHED.txt").read_text()


def test_eegmat_is_fetched_with_the_publishers_list_and_read(server, tmp_path):
    lines = []
    for subject in eegmat.SUBJECTS[:3]:
        for part, seconds in ((1, 90), (2, 62)):
            path = tmp_path / "made" / f"{subject}_{part}.edf"
            seed = int(subject[-2:]) * 2 + part
            signal = np.random.default_rng(seed).normal(0, 20, (21, seconds * 500))
            names = [f"EEG {name}" for name in eegmat.CHANNELS]
            write_edf(path, [*names, "EEG A2-A1", "ECG ECG"], signal, 500)
            server.files[f"/eegmat/1.0.0/{path.name}"] = path.read_bytes()
            lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.name}\n")
    server.files["/eegmat/1.0.0/SHA256SUMS.txt"] = "".join(lines).encode()
    root = tmp_path / "root"
    root.mkdir()
    (root / "Subject00_1.edf").write_bytes(b"torn")
    (root / "SHA256SUMS.txt").write_bytes(lines[0].encode())  # torn, too
    assert get("eegmat", "--subject", "0-2", "--root", str(root)).exit_code == 0
    source = open_windows("eegmat", root, cache_dir=tmp_path / "cache")
    assert (source.rate_hz, len(source.channel_names)) == (125.0, 19)
    assert np.bincount(source.labels).tolist() == [45, 45]
    server.faults = ["wrong bytes"] * 3
    (root / "Subject00_1.edf").unlink()
    answer = get("eegmat", "--subject", "0", "--root", str(root))
    assert "not the published ones" in str(answer.exception)
    assert not (root / "Subject00_1.edf").exists()


def write_hypnogram(path, stages):
    """Write a file of annotations alone, whose records last 0 s, as Sleep-EDF has them."""
    entries = b"+0\x14\x14\x00" + b"".join(
        f"+{onset}\x15{duration}\x14{text}\x14\x00".encode() for onset, duration, text in stages
    )
    entries += b"\x00" * (len(entries) % 2)
    fields = [("EDF Annotations", 16), ("", 80), ("", 8), ("-1", 8), ("1", 8), ("-32768", 8),
              ("32767", 8), ("", 80), (str(len(entries) // 2), 8), ("", 32)]  # fmt: skip
    head = [("0", 8), ("X X X X", 80), ("Startdate X X X X", 80), ("01.01.0000.00.00", 16),
            ("512", 8), ("EDF+C", 44), ("1", 8), ("0", 8), ("1", 4)]  # fmt: skip
    text = "".join(f"{value:<{width}}" for value, width in head + fields)
    path.write_bytes(text.encode() + entries)


@pytest.fixture
def sleep_root(tmp_path):
    for subject, night in ((0, 1), (0, 2), (1, 1)):
        stem = f"SC4{subject:02d}{night}"
        signal = np.random.default_rng(10 * subject + night).normal(0, 20, (3, 100 * 30 * 100))
        names = ["EEG Fpz-Cz", "EEG Pz-Oz", "EOG horizontal"]
        write_edf(tmp_path / f"{stem}E0-PSG.edf", names, signal, 100)
        stages = [(0, 2100, "Sleep stage W"), (2100, 60, "Sleep stage 1"),
                  (2160, 60, "Sleep stage 2"), (2220, 30, "Sleep stage 3"),
                  (2250, 30, "Sleep stage 4"), (2280, 30, "Movement time"),
                  (2310, 60, "Sleep stage R"), (2370, 630, "Sleep stage W"),
                  (3000, 7000, "Sleep stage ?")]  # fmt: skip
        stages[-1] = (3000, 6990, "Sleep stage ?")
        write_hypnogram(tmp_path / f"{stem}EC-Hypnogram.edf", stages)
    return tmp_path


def test_nights_of_sleep_edf_stay_together_and_wake_is_cut(sleep_root, tmp_path):
    source = open_windows("sleep_edf", sleep_root, cache_dir=tmp_path / "cache")
    assert source.subjects == ("SC400", "SC401")
    first = source.prepared[0]
    # 60 epochs of wake before sleep, 21 after it, 2 of N1, N2, N3 and REM, in each of two nights
    assert first.class_counts() == (2 * 81, 4, 4, 4, 4)
    assert any("1 epochs without a stage" in note for note in first.notes)
    short = open_windows(
        "sleep_edf", sleep_root, options={"nights": [1], "wake_margin_s": 60},
        cache_dir=tmp_path / "cache",
    )  # fmt: skip
    assert short.prepared[0].class_counts() == (4, 2, 2, 2, 2)


def test_a_hypnogram_that_fits_no_epochs_is_refused(sleep_root, tmp_path):
    write_hypnogram(sleep_root / "SC4011EC-Hypnogram.edf", [(10, 30, "Sleep stage 2")])
    with pytest.raises(DataError, match="does not fit epochs of 30 s"):
        open_windows("sleep_edf", sleep_root, subjects=["SC401"], cache_dir=tmp_path / "cache")


def test_the_list_of_sleep_edf_is_that_of_mne():
    settings = sleep_edf.SleepEdfSettings()
    files = sleep_edf.DATASET.fetch.files(None, sleep_edf.SUBJECTS, settings)
    assert len(files) == 2 * 153  # nights
    assert all(file.checksum.startswith("sha1:") for file in files)


REAL_EEGMAT = Path(__file__).resolve().parents[4] / "shared" / "data" / "eegmat"


@pytest.mark.skipif(not REAL_EEGMAT.is_dir(), reason="the recordings of EEGMAT are not here")
def test_real_recordings_of_eegmat_are_read_as_mne_reads_them(tmp_path):
    import mne

    source = open_windows("eegmat", REAL_EEGMAT, cache_dir=tmp_path)
    assert source.subjects == ("Subject00", "Subject01", "Subject04", "Subject31")
    assert source.prepared[0].class_counts() == (15, 15)
    settings = {"band_hz": "none", "resample_hz": 500.0, "channels": ["O1"]}
    plain = open_windows("eegmat", REAL_EEGMAT, options=settings, cache_dir=tmp_path)
    raw = mne.io.read_raw_edf(REAL_EEGMAT / "Subject00_2.edf", verbose="error", preload=True)
    theirs = raw.get_data(picks=["EEG O1"])[0, -60 * 500 :] * 1e6
    ours = plain.gather(plain.indices_of(["Subject00"])[15:])[:, 0].reshape(-1)
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
