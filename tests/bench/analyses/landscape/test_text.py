from dataclasses import replace

from afor.bench.analyses.landscape.views import describe, findings


def test_the_description_says_how_the_numbers_were_made(bowl):
    text = describe(bowl)
    for words in (
        "made up: deap, eegnet, fold 1, draw 2; center: AFOR's solution",
        "two random directions, made orthonormal, seed 7; 1,724 weights",
        "512 of 9,000 training windows, evaluation mode, batch norm (3 layers): statistics of the",
        "5 x 5 from -2 to 2; all losses in 61 s on 2 cores",
    ):
        assert words in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["Adam"][1:] == ["2.0000", "2.5000", "2.500", "40.000", "0.12", "%", "0.06", "%",
                                "2"]  # fmt: skip
    assert rows["AFOR"][1:3] == ["1.0000", "1.5000"]


def test_the_findings_say_what_the_plane_does_not_show(bowl):
    text = "\n".join(findings(bowl))
    assert "keeps 0.12 % to 0.23 %" in text
    assert "random directions of 1,724 keep 0.12 % of any path" in text
    assert "Over the whole grid the loss varies by 8; along the true paths it varies by 4.5" in text
    assert "200 random ones 2 ± 0.75 (Adam), 2 ± 0.75 (AFOR)" in text
    assert "different numbers of epochs" in text
    assert "leaves the grid" not in text


def test_what_does_not_apply_is_not_said(bowl):
    nan = float("nan")
    bowl = replace(
        bowl, paths={n: replace(p, random_length_mean=nan) for n, p in bowl.paths.items()}
    )
    adam = replace(bowl.paths["adam"], epochs=3)
    text = "\n".join(findings(replace(bowl, directions="pca", span=1.0,
                                      paths={**bowl.paths, "adam": adam})))  # fmt: skip
    assert "random" not in text
    assert "different numbers" not in text
    assert "A path leaves the grid" in text
