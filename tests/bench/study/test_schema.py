import re

import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.study.schema import (
    load_study,
    paper_backbone,
    parse_study,
    preset_names,
    preset_text,
)

HEAD = """name = "x"
datasets = ["synthetic"]
backbones = ["eegnet"]
optimizers = ["adam"]
"""


def test_the_presets_are_those_the_documentation_names():
    wanted = (
        "ablation controls convergence demo demo-people demo-synthetic headroom lr-search open "
    )
    wanted += "open-sleep paper paper-original physionet sensitivity smoke"
    assert preset_names() == wanted.split()
    for name in preset_names():
        assert load_study(name).name == name


def test_the_paper_preset_holds_the_papers_values():
    study = load_study("paper")
    assert (study.training.max_epochs, study.training.patience) == (200, 30)
    assert study.training.weight_decay == 1e-4
    assert study.protocol.repetitions == 5
    names = [paper_backbone(b.name) for b in study.backbones]
    assert names == ["eegnet", "acrnn", "nsal_dgat", "hslt"]
    rates = {d.name: [d.lr[name] for name in names] for d in study.datasets}
    assert rates == {
        "deap": [1e-3, 1e-3, 1e-3, 1e-3],
        "bci2a": [3e-3, 3e-4, 3e-4, 3e-4],
        "isruc": [3e-4, 1e-4, 3e-4, 3e-4],
    }
    assert [d.batch_size for d in study.datasets] == [256, 64, 64]
    assert [d.folds for d in study.datasets] == [None, None, 10]
    search = load_study("lr-search")
    assert search.search is not None
    assert search.search.grid == [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
    assert (search.training.max_epochs, search.training.patience) == (50, 15)


@pytest.mark.parametrize("name", ["paper", "lr-search", "ablation", "controls", "convergence"])
def test_presets_of_the_paper_use_the_networks_its_authors_released(name):
    for backbone in load_study(name).backbones:
        assert backbone.use.endswith("_authors")
        repaired = backbone.use == "nsal_dgat_authors"  # else it refuses ISRUC
        assert backbone.settings == ({"repair": True} if repaired else {})


def test_the_study_paper_original_differs_from_paper_in_the_networks_alone():
    original, paper = load_study("paper-original"), load_study("paper")
    assert [b.use for b in original.backbones] == ["eegnet", "acrnn", "nsal_dgat", "hslt"]
    same = {"name": "", "description": "", "backbones": []}
    assert original.model_copy(update=same) == paper.model_copy(update=same)


def test_every_number_of_the_paper_preset_says_where_it_comes_from():
    bare = []
    explained = False
    for line in preset_text("paper").splitlines():
        if re.match(r"^(start_s|stop_s|seed|stride_samples)", line):
            continue  # explained by the line before, or no number of the paper
        explained = "#" in line
        if re.search(r"=\s*[\[{]?\s*[\w]*\s*=?\s*\d", line) and not explained:
            bare.append(line)
    assert bare == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sede = 1", 'line 5: unknown key "sede". Did you mean "seed"?'),
        ("[training]\nmax_epoch = 3", 'line 6: unknown key "training.max_epoch". Did you mean'),
        ("[training]\nmax_epochs = -3", "line 6: training.max_epochs = -3 is not valid"),
        ("[training]\nmax_epochs = 1.5", "line 6: training.max_epochs = 1.5 is not valid"),
        ("[training]\nmax_epochs = true", "line 6: training.max_epochs = True is not valid"),
        ('[training]\npatience = "30"', "line 6: training.patience = '30' is not valid"),
        ("[training]\n\nlr = nan", "line 7: training.lr = nan is not valid"),
        ("[training]\nlr = inf", "line 6: training.lr = inf is not valid"),
        ("[training]\nlr = 0.0", "line 6: training.lr = 0.0 is not valid"),
        ('[training]\nnormalization = "zscor"', "line 6: training.normalization = 'zscor'"),
        ("[search]\ngrid = []", "line 6: search.grid = [] is not valid"),
        ("[search]\ngrid = [1e-3, nan]", "line 6: search.grid.2 = nan is not valid"),
        ("lr = ", "not valid TOML"),
        ("seed = 1\nseed = 2", "not valid TOML"),
    ],
)  # fmt: skip
def test_a_bad_value_is_named_with_its_line_and_the_nearest_key(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_study(HEAD + text, "my.toml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("my.toml")


def test_entries_in_tables_are_named_with_their_own_line():
    text = 'name = "x"\ndatasets = ["synthetic"]\nbackbones = ["eegnet"]\n'
    text += '[[optimizers]]\nname = "adam"\n[[optimizers]]\nname = "b"\nlrr = 3\n'
    with pytest.raises(ConfigError, match=r'line 8: unknown key "optimizers.2.lrr".*"lr"'):
        parse_study(text)
    with pytest.raises(ConfigError, match=r'line 8.*optimizers has "adam" twice'):
        parse_study(text.replace("lrr = 3", '[[optimizers]]\nname = "adam"'))


def test_a_missing_key_and_a_rate_for_nobody_are_told():
    with pytest.raises(ConfigError, match='"optimizers" is missing'):
        parse_study('name = "x"\ndatasets = ["synthetic"]\nbackbones = ["eegnet"]')
    text = HEAD.replace('datasets = ["synthetic"]\n', "")
    text += '[[datasets]]\nname = "synthetic"\nlr = { eegent = 1e-3 }'
    with pytest.raises(ConfigError, match=r'line 6: .*"eegent".*Did you mean "eegnet"'):
        parse_study(text)


def test_an_unknown_study_names_the_nearest_and_a_missing_file_says_how_to_start_one(tmp_path):
    with pytest.raises(ConfigError, match=r'no study "papr".*Did you mean "paper"'):
        load_study("papr")
    with pytest.raises(ConfigError, match="afor study demo >"):
        load_study(str(tmp_path / "absent.toml"))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_study(str(binary))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_study_file_may_have_a_byte_order_mark(tmp_path, small_study, encoding):
    file = tmp_path / "mine.toml"
    file.write_text(small_study(), encoding=encoding)
    assert load_study(str(file)).name == "tiny"


def test_a_study_file_is_found_without_its_suffix(tmp_path, monkeypatch, small_study):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(small_study())
    assert load_study("mine").name == "tiny"
