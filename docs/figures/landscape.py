"""Draw the pictures of the landscape page from the files that `afor analyse landscape` wrote.

python docs/figures/landscape.py results/random.json results/pca.json results/filter.json
"""

import json
import sys
from pathlib import Path

from afor.bench.analyses.landscape.record import read_landscape
from afor.bench.analyses.landscape.views import landscape_figure
from afor.bench.report.figures.style import save_figure

IMAGES = Path(__file__).parents[1] / "images"


def main():
    for name in sys.argv[1:]:
        measured = read_landscape(json.loads(Path(name).read_text()), name)
        target = IMAGES / f"landscape_{measured.directions}.png"
        save_figure(landscape_figure(measured), target, dpi=220)
        print(target)


if __name__ == "__main__":
    main()
