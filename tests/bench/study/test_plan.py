import copy

import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.data.loading import open_windows
from afor.bench.execution.sources import open_sources
from afor.bench.study.plan import make_plan, shard
from afor.bench.study.planned_runs import canonical, run_key
from afor.bench.study.schema import parse_study

MARKED = """margins = { accuracy = 2.5 }
optimizers = ["adam", { name = "afor", control = true }]"""
OPTIONS = {"n_subjects": 4, "trials": 4, "rate_hz": 64.0, "channels": ["C3", "C4"]}


@pytest.fixture
def text(small_study):
    return small_study(
        name="x",
        optimizers=["adam", "afor"],
        training={"max_epochs": 3, "batch_size": None},
        protocol={"repetitions": 2},
        dataset={"batch_size": 16, "lr": {"eegnet": 3e-3}},
        options=OPTIONS,
    )


@pytest.fixture
def sources(window_cache):
    return {"synthetic": open_windows("synthetic", options=OPTIONS, cache_dir=window_cache)}


def keys(sources, text):
    return [cell.key for cell in make_plan(parse_study(text), sources).runs]


def test_a_plan_holds_every_fold_draw_and_optimizer_once(text, sources):
    plan = make_plan(parse_study(text), sources)
    assert len(plan.runs) == len(set(keys(sources, text))) == 4 * 2 * 2
    assert [(e.method, e.folds, e.repetitions) for e in plan.expected()] == [
        ("adam", 4, 2),
        ("afor", 4, 2),
    ]
    first = plan.runs[:2]
    assert [cell.method for cell in first] == ["adam", "afor"]  # pairs stand together
    assert first[0].spec["split"] == first[1].spec["split"]


def test_a_spec_holds_all_that_decides_the_number(text, sources):
    spec = make_plan(parse_study(text), sources).runs[1].spec
    assert spec["data"]["fingerprint"] == sources["synthetic"].fingerprint
    assert spec["data"]["preprocessing"]["channels"] == ["C3", "C4"]
    assert spec["optimizer"]["name"] == "afor"
    assert spec["optimizer"]["settings"]["betas"] == [0.9, 0.999]
    assert spec["optimizer"]["lr"] == 3e-3
    assert spec["training"]["batch_size"] == 16
    assert {"code", "seed", "threads", "dtype", "device", "split"} < spec.keys()
    assert run_key(spec) == make_plan(parse_study(text), sources).runs[1].key


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_epochs = 3", "max_epochs = 4"),
        ("batch_size = 16", "batch_size = 17"),
        ("eegnet = 0.003", "eegnet = 1e-3"),
        ('name = "x"', 'name = "x"\nseed = 1'),
        ('name = "x"', 'name = "x"\nthreads = 2'),
        ("max_epochs = 3", 'max_epochs = 3\nnormalization = "window"'),
        ("max_epochs = 3", "max_epochs = 3\nsubjects_per_batch = 2"),
    ],
)
def test_what_decides_the_number_changes_every_key(text, sources, old, new):
    assert not set(keys(sources, text)) & set(keys(sources, text.replace(old, new)))


def test_what_does_not_decide_the_number_changes_no_key(text, sources, tmp_path):
    same = text.replace('name = "x"', 'name = "y"\ndescription = "z"')
    assert keys(sources, text) == keys(sources, same)
    renamed = text.replace('["adam", "afor"]', '["adam", {name = "other", use = "afor"}]')
    assert keys(sources, text) == keys(sources, renamed)
    elsewhere = open_windows("synthetic", options=OPTIONS, cache_dir=tmp_path / "elsewhere")
    assert keys(sources, text) == keys({"synthetic": elsewhere}, text)


def test_margins_and_controls_change_no_key_and_a_control_has_its_role(text, sources):
    marked = text.replace('optimizers = ["adam", "afor"]', MARKED)
    assert marked != text
    plan = make_plan(parse_study(marked), sources)
    assert [run.key for run in plan.runs] == keys(sources, text)
    assert [run.role.control for run in plan.runs[:2]] == [False, True]
    with pytest.raises(ConfigError, match=r"margins.accuracy = -1.0 is not valid"):
        parse_study(marked.replace("2.5", "-1.0"))


def test_a_rate_for_a_network_of_the_paper_serves_both_its_families(text, sources):
    def rates(text):
        return {cell.rate for cell in make_plan(parse_study(text), sources).runs}

    authors = text.replace('backbones = ["eegnet"]', 'backbones = ["eegnet_authors"]')
    assert rates(authors) == {3e-3}
    with_both = authors.replace("eegnet = 0.003", "eegnet = 0.003, eegnet_authors = 1e-4")
    assert rates(with_both) == {1e-4}


def test_a_control_has_other_seeds_and_the_same_splits(text, sources):
    text = text.replace('"afor"]', '{name = "adam_again", use = "adam", seed = 1}]')
    one, two = make_plan(parse_study(text), sources).runs[:2]
    assert one.spec["split"] == two.spec["split"]
    assert (one.spec["seed"], two.spec["seed"]) == (0, 1)
    assert one.key != two.key


def test_a_search_tries_every_rate_of_the_grid(text, sources):
    text = text.replace("[protocol]", "[search]\ngrid = [1e-2, 1e-3]\n[protocol]\nonly_folds = [0]")
    plan = make_plan(parse_study(text), sources)
    assert [cell.method for cell in plan.runs[:2]] == ["adam lr=0.001", "adam lr=0.01"]
    assert len(plan.runs) == 2 * 2 * 2
    assert {cell.fold for cell in plan.runs} == {0}


def test_shards_share_out_all_runs(text, sources):
    cells = make_plan(parse_study(text), sources).runs
    parts = [shard(cells, number, 3) for number in (1, 2, 3)]
    assert sorted(c.key for part in parts for c in part) == sorted(c.key for c in cells)
    with pytest.raises(ConfigError, match="shard 4/3"):
        shard(cells, 4, 3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"afor"]', '"aforr"]', "afor"),
        ('["eegnet"]', '["eegnett"]', "eegnet"),
        ('["eegnet"]', '[{name = "eegnet", settings = {depht = 3}}]', "depth"),
        ('"afor"]', '{name = "afor", settings = {beta2_mim = 0.9}}]', "beta2_min"),
        ("repetitions = 2", "repetitions = 2\nonly_folds = [9]", "no fold 9"),
        ('name = "x"', 'name = "x"\ntrainer = "no_such_module:train"', "no_such_module"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(text, sources, old, new, message):
    with pytest.raises(ConfigError, match=message):
        make_plan(parse_study(text.replace(old, new)), sources)


def test_an_excluded_subject_changes_no_key_but_by_its_absence(text, cache_dir):
    def keys_of(line):
        study = parse_study(text.replace("[[datasets]]", f"[[datasets]]\n{line}"))
        return [cell.key for cell in make_plan(study, open_sources(study, cache_dir)).runs]

    everyone = parse_study(text)
    subjects = open_sources(everyone, cache_dir)["synthetic"].subjects
    assert keys_of("exclude = []") == keys_of("")
    assert keys_of(f'exclude = ["{subjects[1]}"]') == keys_of(
        f"subjects = {[subject for subject in subjects if subject != subjects[1]]}"
    )
    with pytest.raises(ConfigError, match=r"exclude names 'sub-99', which is no subject"):
        keys_of('exclude = ["sub-99"]')


def test_a_network_with_other_numbers_changes_its_own_keys_alone(text, sources, monkeypatch):
    from afor.bench.models import registry

    both = text.replace('["eegnet"]', '["eegnet", "eegnet_authors"]')
    before = make_plan(parse_study(both), sources).runs
    monkeypatch.setitem(registry.NETWORK_NUMERICS, "eegnet", 99)
    after = make_plan(parse_study(both), sources).runs
    same = {new.backbone for old, new in zip(before, after, strict=True) if old.key == new.key}
    assert same == {"eegnet_authors"}


def test_a_users_code_is_part_of_the_key(text, sources, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, body in enumerate(("A = 1\n", "A = 2\n")):
        (tmp_path / f"user_trainer_{number}.py").write_text(f"{body}def train(spec, source): ...\n")
    texts = [text.replace('"x"', f'"x"\ntrainer = "user_trainer_{n}:train"') for n in (0, 1)]
    assert not set(keys(sources, texts[0])) & set(keys(sources, texts[1]))


def test_the_canonical_text_does_not_depend_on_order_and_refuses_nan():
    value = {"b": [1, 2.5], "a": {"d": None, "c": "ä"}}
    turned = {"a": dict(reversed(value["a"].items())), "b": copy.copy(value["b"])}
    assert canonical(value) == canonical(turned) == '{"a":{"c":"ä","d":null},"b":[1,2.5]}'
    with pytest.raises(ValueError):
        canonical(float("nan"))


def test_the_kind_of_device_is_part_of_the_key_and_its_number_is_not(
    small_study, cache_dir, monkeypatch
):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    keys = {}
    for device in ("cpu", "cuda", "cuda:1", "auto"):
        study = parse_study(small_study(device=device))
        keys[device] = make_plan(study, open_sources(study, cache_dir)).runs[0].key
    assert keys["cuda"] == keys["cuda:1"] == keys["auto"] != keys["cpu"]


def test_a_lower_precision_is_part_of_the_key(small_study, cache_dir):
    keys = {}
    for precision in (None, "float32", "tf32", "bfloat16"):
        study = parse_study(small_study(training={"precision": precision}))
        keys[precision] = make_plan(study, open_sources(study, cache_dir)).runs[0].key
    assert keys[None] == keys["float32"]
    assert len(set(keys.values())) == 3
