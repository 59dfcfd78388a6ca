"use strict";
// Sorting, filtering and links to folded parts. The page says the same without any of it.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  table.querySelectorAll("th[data-column]").forEach((head) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.title = "Sort by this column";
    head.textContent = "";
    head.append(button);
    button.addEventListener("click", () => {
      // Numbers begin with the largest, names with the first of the alphabet.
      const column = Number(head.dataset.column);
      const value = (row) => (row.cells[column] ? row.cells[column].dataset.value : "");
      const isNumber = (row) => value(row) !== "" && !Number.isNaN(Number(value(row)));
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : rows.some(isNumber);
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      // Only the lines of one section change places: rows stay below their heading, and controls
      // and reference levels below the rule that sets them apart. Cells without a value stay last.
      let section = [];
      const flush = () => {
        section.sort((a, b) => {
          const order = isNumber(a) && isNumber(b) ? value(a) - value(b)
            : String(value(a)).localeCompare(String(value(b)));
          return (value(a) === "") - (value(b) === "") || (down ? -order : order);
        });
        body.append(...section);
        section = [];
      };
      for (const row of rows) {
        if (row.classList.contains("heading")) { flush(); body.append(row); continue; }
        if (row.classList.contains("rule")) flush();
        section.push(row);
      }
      flush();
    });
  });
}
for (const input of document.querySelectorAll("input.filter")) {
  input.hidden = false;
  const rows = [...document.getElementById(input.dataset.table).tBodies[0].rows];
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let heading = null;
    let shown = false;
    let prefix = "";
    for (const row of rows) {
      if (row.classList.contains("heading")) {
        if (heading) heading.hidden = !shown;
        [heading, shown, prefix] = [row, false, row.textContent.toLowerCase()];
        continue;
      }
      const text = prefix + " " + row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown = shown || !row.hidden;
    }
    if (heading) heading.hidden = !shown;
  });
}
const open = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", open);
open();
