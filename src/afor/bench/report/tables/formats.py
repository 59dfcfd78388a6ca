"""Define tables and write them for the terminal, as Markdown, HTML, LaTeX, CSV and JSON."""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import chain

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from afor.bench.common.text import escape_cell, without_nan
from afor.bench.common.text import printable as printable

COLUMN_GAP = 3  # columns of the terminal between two columns of a table


@dataclass(frozen=True)
class TableCell:
    """The text of one cell and its marks."""

    text: str = ""
    best: bool = False
    second: bool = False
    star: bool = False  # the paper's: significantly better than the baseline
    mark: str = ""  # after the star; the notes of the table explain it
    partial: str = ""  # done/expected where runs are missing
    link: str = ""  # dataset/backbone/method of the condition it shows


@dataclass(frozen=True)
class Column:
    """A column of numbers; neighbours of one group share a heading."""

    label: str
    group: str = ""


@dataclass(frozen=True)
class Row:
    """A row with a label, or a heading of the rows that follow."""

    label: str
    cells: tuple[TableCell, ...] = ()
    heading: bool = False
    rule: bool = False  # a thin line above


@dataclass(frozen=True)
class Table:
    """A table independent of its format. `records` holds the unrounded numbers."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    label: str = "Method"
    lead: tuple[tuple[str, ...], ...] = ()  # paragraphs above the table, in lines
    notes: tuple[str, ...] = ()
    records: tuple[Mapping[str, object], ...] = field(default=(), repr=False)


def columns_of(*labels: str) -> tuple[Column, ...]:
    """Return columns without groups."""
    return tuple(map(Column, labels))


def text_row(label: str, texts: Iterable[str]) -> Row:
    """Return a row of cells without marks."""
    return Row(label, tuple(map(TableCell, texts)))


def to_terminal(table: Table, *, width: int, styled: bool) -> list[RichTable]:
    """Return rich tables no wider than `width`; column groups are split over several tables.

    Without style, ¹ and ² mark the best and the second best.
    """
    first = max([len(table.label), *(len(printable(row.label)) for row in table.rows)])
    parts: list[list[int]] = []
    used = 0
    for members in _groups(table.columns):
        size = sum(_width(table, i, styled) + COLUMN_GAP for i in members)
        if not parts or used + size > width:
            parts.append([])
            used = first + COLUMN_GAP
        parts[-1] += members
        used += size
    tables = []
    for part in parts:
        grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
        grid.add_column(table.label, no_wrap=True)
        for i in part:
            column = table.columns[i]
            heading = f"{column.group}\n{column.label}" if column.group else column.label
            grid.add_column(_text(heading, ""), justify="right", no_wrap=True)
        sections = any(row.heading for row in table.rows)
        for i, row in enumerate(table.rows):
            if i and (row.heading or (row.rule and not sections)):
                grid.add_row()
            if row.heading:
                grid.add_row(_text(row.label, "bold cyan"))
                continue
            grid.add_row(
                _text(row.label, ""), *(_terminal_cell(row.cells[j], styled) for j in part)
            )
        tables.append(grid)
    return tables


def to_markdown(table: Table) -> str:
    """Return a GitHub table; the best is bold, the second best underlined."""
    headings = [table.label, *(f"{c.group} {c.label}".strip() for c in table.columns)]
    lines = [
        f"**{escape_markdown(table.title)}**",
        "",
        *(text for lines in table.lead for text in ("\\\n".join(map(escape_markdown, lines)), "")),
        "| " + " | ".join(escape_markdown(text) for text in headings) + " |",
        "|---|" + "---:|" * len(table.columns),
    ]
    for row in table.rows:
        if row.heading:
            texts = [f"**{escape_markdown(row.label)}**", *[""] * len(table.columns)]
        else:
            texts = [escape_markdown(row.label), *(_markdown_cell(cell) for cell in row.cells)]
        lines.append("| " + " | ".join(texts) + " |")
    lines += [text for note in table.notes for text in ("", escape_markdown(note))]
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """Return a table* for booktabs and [table]{xcolor}."""
    groups = _groups(table.columns)
    lines = [
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}}}",
        rf"\label{{tab:{re.sub(r'[^a-z0-9]+', '-', table.name.lower())}}}",
        r"\footnotesize",
        rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        r"\toprule",
    ]
    if any(column.group for column in table.columns):
        heads, rules = [""], []
        for members in groups:
            group = escape_latex(table.columns[members[0]].group)
            heads.append(rf"\multicolumn{{{len(members)}}}{{c}}{{\textbf{{{group}}}}}")
            rules.append(rf"\cmidrule(lr){{{members[0] + 2}-{members[-1] + 2}}}")
        lines += [" & ".join(heads) + r" \\", "".join(rules)]
    labels = [
        rf"\textbf{{{escape_latex(table.label)}}}",
        *(rf"\textit{{{escape_latex(column.label)}}}" for column in table.columns),
    ]
    lines += [" & ".join(labels) + r" \\", r"\midrule"]
    span = len(table.columns) + 1
    for i, row in enumerate(table.rows):
        if (row.heading and i) or row.rule:
            lines.append(r"\midrule")
        if row.heading:
            heading = rf"\multicolumn{{{span}}}{{c}}{{\textbf{{{escape_latex(row.label)}}}}} \\"
            lines += [heading, r"\midrule"]
        else:
            texts = [escape_latex(row.label), *(_latex_cell(cell) for cell in row.cells)]
            lines.append(" & ".join(texts) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.lead or table.notes:
        lines += [r"\par\vspace{2pt}", r"\begin{minipage}{\textwidth}\footnotesize"]
        lines += [escape_latex(note) + r"\par" for note in (*chain(*table.lead), *table.notes)]
        lines.append(r"\end{minipage}")
    lines.append(r"\end{table*}")
    needs = "% needs \\usepackage{booktabs} and \\usepackage[table]{xcolor}\n"
    return needs + "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Return the records, one line each, unrounded."""
    names = list(dict.fromkeys(name for record in table.records for name in record))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writerow({name: escape_cell(name) for name in names})
    writer.writerows({k: escape_cell(v) for k, v in record.items()} for record in table.records)
    return file.getvalue()


def to_json(table: Table) -> str:
    """Return title, notes and records as JSON; values that are not finite become null."""
    content = {
        "table": table.name,
        "title": table.title,
        "lead": table.lead,
        "notes": table.notes,
        "rows": table.records,
    }
    return json.dumps(without_nan(content), indent=1, ensure_ascii=False)


def to_html(
    table: Table, *, anchors: Mapping[str, str] | None = None, sortable: bool = False
) -> str:
    """Return a table element without scripts or styles; cells carry what a page sorts by.

    Args:
        table: The table.
        anchors: Ids on the page by the link of a cell, to which its number then leads.
        sortable: Mark the table for the report's script.
    """

    def text(plain: str) -> str:
        return escape(printable(plain))

    name = text(table.name)
    lines = [f'<table id="table-{name}"' + (' class="sortable">' if sortable else ">")]
    lines.append(f'<caption class="unseen">{text(table.title)}</caption><thead>')
    if any(column.group for column in table.columns):
        heads = "".join(
            f'<th scope="colgroup" colspan="{len(members)}">{text(group)}</th>'
            if (group := table.columns[members[0]].group)
            else f'<td colspan="{len(members)}"></td>'
            for members in _groups(table.columns)
        )
        lines.append(f'<tr class="groups"><td></td>{heads}</tr>')
    labels = [table.label, *(column.label for column in table.columns)]
    heads = "".join(
        f'<th scope="col" data-column="{i}">{text(label)}</th>' for i, label in enumerate(labels)
    )
    lines.append(f"<tr>{heads}</tr></thead><tbody>")
    for row in table.rows:
        label = text(row.label)
        if row.heading:
            wide = f'<th scope="rowgroup" colspan="{len(labels)}">{label}</th>'
            lines.append(f'<tr class="heading">{wide}</tr>')
            continue
        head = f'<th scope="row" data-value="{label}">{label}</th>'
        cells = "".join(_html_cell(cell, anchors or {}) for cell in row.cells)
        start = '<tr class="rule">' if row.rule else "<tr>"
        lines.append(f"{start}{head}{cells}</tr>")
    lines.append("</tbody></table>")
    return "\n".join(lines)


def escape_markdown(text: str) -> str:
    """Escape text for Markdown and for the HTML made from it.

    >>> escape_markdown("<b> & co")
    '&lt;b&gt; &amp; co'
    """
    plain = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", plain)


def escape_latex(text: str) -> str:
    r"""Escape text for LaTeX.

    >>> escape_latex("50% of a_b ± 1")
    '50\\% of a\\_b $\\pm$ 1'
    """
    pattern = "|".join(re.escape(key) for key in sorted(_LATEX, key=len, reverse=True))
    return re.sub(pattern, lambda match: _LATEX[match[0]], printable(text))


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "±": r"$\pm$", "−": "$-$", "–": "--", "β₂": r"$\beta_2$", "β": r"$\beta$", "²": "$^{2}$",
    "⁻³": "$^{-3}$", "≤": r"$\leq$", "≈": r"$\approx$", "°": r"$^\circ$", "↑": r"$\uparrow$",
    "↓": r"$\downarrow$", "×": r"$\times$", "�": "?", "*": "$^{*}$", "…": r"\ldots{}",
    "√": r"$\surd$", "Σ": r"$\Sigma$", "Δ": r"$\Delta$", "α": r"$\alpha$", "ε": r"$\varepsilon$",
    "η": r"$\eta$", "θ": r"$\theta$", "κ": r"$\kappa$", "λ": r"$\lambda$", "π": r"$\pi$",
    "σ": r"$\sigma$", "χ": r"$\chi$", "ω": r"$\omega$", "₀": "$_{0}$",
}  # fmt: skip


def _groups(columns: Sequence[Column]) -> list[list[int]]:
    groups: list[list[int]] = []
    for i, column in enumerate(columns):
        if groups and column.group and columns[groups[-1][0]].group == column.group:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _plain(cell: TableCell) -> str:
    star = "*" if cell.star else ""
    partial = f" ({cell.partial})" if cell.partial else ""
    return f"{printable(cell.text)}{star}{cell.mark}{partial}"


def _terminal_cell(cell: TableCell, styled: bool) -> Text:
    text = _plain(cell)
    if not styled:
        return _text(text + ("¹" if cell.best else "²" if cell.second else ""), "")
    style = "bold reverse" if cell.best else "underline" if cell.second else ""
    return _text(text, style or ("dim" if cell.partial else ""))


def _width(table: Table, i: int, styled: bool) -> int:
    cells = [row.cells[i] for row in table.rows if not row.heading]
    column = table.columns[i]
    widths = [_terminal_cell(cell, styled).cell_len for cell in cells]
    return max([*widths, len(printable(column.label)), len(printable(column.group))])


def _text(text: str, style: str) -> Text:
    # Style the text alone: a style of the cell would also underline its padding.
    return Text().append("\n".join(printable(line) for line in text.split("\n")), style or None)


def _markdown_cell(cell: TableCell) -> str:
    text = escape_markdown(_plain(cell))
    return f"**{text}**" if cell.best else f"<u>{text}</u>" if cell.second else text


def _html_cell(cell: TableCell, anchors: Mapping[str, str]) -> str:
    text = escape(_plain(cell))
    text = f"<b>{text}</b>" if cell.best else f"<u>{text}</u>" if cell.second else text
    if cell.link in anchors:
        text = f'<a href="#{anchors[cell.link]}" title="Show its folds">{text}</a>'
    kind = "best" if cell.best else "partial" if cell.partial else "long" * (" (" in cell.text)
    marked = f' class="{kind}"' if kind else ""
    return f'<td data-value="{_sort_value(cell.text)}"{marked}>{text}</td>'


def _sort_value(text: str) -> str:
    """Return the first number of a cell's text, for sorting."""
    number = re.match(r"[±+−-]?\d+(\.\d+)?(e[+-]?\d+)?", text)
    return number[0].replace("−", "-").lstrip("±+") if number else ""


def _latex_cell(cell: TableCell) -> str:
    text = escape_latex(cell.text)
    text += "$^{*}$" if cell.star else ""
    text += escape_latex(cell.mark)
    text += rf" {{\scriptsize ({cell.partial})}}" if cell.partial else ""
    if cell.best:
        return rf"\cellcolor{{gray!40}}{text}"
    return rf"\underline{{{text}}}" if cell.second else text
