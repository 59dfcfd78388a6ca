from dataclasses import replace

from afor.bench.analyses.landscape.views import findings, landscape_table


def test_the_table_says_how_the_numbers_were_made(bowl):
    table = landscape_table(bowl)
    for words in (
        "made up: deap, eegnet, fold 1, repetition 2; random directions of 1,724 weights, seed 7, "
        "around",
        "5 x 5 points from -2 to 2; 512 of 9,000 training windows in evaluation mode; batch norm",
    ):
        assert words in table.notes[0]
    ours = {(r["measure"], r["method"]): r["value"] for r in table.records[-12:]}
    assert ours["minimum_loss", "adam"] == 2.0
    assert ours["path_length_full", "adam"] == 40.0
    assert ours["explained_percent", "afor"] == 100 * 0.0023


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
