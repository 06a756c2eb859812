"use strict";
// Sorting and filtering of tables; without scripts they stand in the order of ids, whole.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const collator = new Intl.Collator("en", { numeric: true });
  const keys = rows.map((row) => Array.from(row.cells, (cell) => cell.dataset.sort ?? cell.textContent.trim()));
  const heads = table.querySelectorAll("thead tr:last-child th");

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const direction = head.ariaSort === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
      const places = rows.map((_, place) => place);
      places.sort((a, b) => {
        const [left, right] = [keys[a][column], keys[b][column]];
        if (left === "" || right === "") return (left === "") - (right === "") || a - b; // missing values stay last
        return direction * collator.compare(left, right) || a - b;
      });
      body.append(...places.map((place) => rows[place]));
    });
  });

  if (rows.length < 8) continue; // nothing to search for
  const filter = document.createElement("div");
  filter.className = "filter";
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = "Filter, e.g. an id, bam or failed";
  input.setAttribute("aria-label", "Filter the samples");
  const shown = document.createElement("span");
  shown.setAttribute("aria-live", "polite");
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const apply = () => {
    const wanted = input.value.trim().toLowerCase();
    let count = 0;
    rows.forEach((row, place) => {
      row.hidden = !texts[place].includes(wanted);
      count += !row.hidden;
    });
    shown.textContent = wanted ? `${count} of ${rows.length} shown` : "";
  };
  input.addEventListener("input", apply);
  filter.append(input, shown);
  table.closest(".scroll").before(filter);
}
