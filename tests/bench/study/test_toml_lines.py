import pytest

from afor.bench.study.schema import line_of

TEXT = """\
name = "x"   # one
list = [
  "a",   # seed = 3 in here is no key
]
[training]
lr = 1e-3
note = '''
lr = 5
'''
[[datasets]]
name = "first"
[datasets.options]
shift = 1.0
[[datasets]]
name = "second"
options = { shift = 2.0, deep.key = 1 }
[datasets.lr]
"eegnet" = 1e-3
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 1),
        (("list", 0), 2),
        (("training",), 5),
        (("training", "lr"), 6),
        (("training", "note"), 7),
        (("datasets", 0, "name"), 11),
        (("datasets", 0, "options", "shift"), 13),
        (("datasets", 1), 14),
        (("datasets", 1, "name"), 15),
        (("datasets", 1, "options", "shift"), 16),
        (("datasets", 1, "lr", "eegnet"), 18),
        (("training", "absent"), 5),
        (("absent",), None),
        (("seed",), None),
    ],
)
def test_a_key_is_found_on_its_line_or_that_of_the_table_around_it(path, line):
    assert line_of(TEXT, path) == line
