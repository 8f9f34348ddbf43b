// Whatever scrolls sideways can be scrolled with the keyboard.
const reach = () => {
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code, .output_area")) {
    if (part.scrollWidth > part.clientWidth) {
      part.tabIndex = 0;
    }
  }
};
addEventListener("load", reach);
addEventListener("resize", reach);
addEventListener("load", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
});
// A box above the tables of a `searchable` part: rows stay that have all of its words.
const makeSearchable = (part) => {
  const box = document.createElement("input");
  box.type = "search";
  box.placeholder = "Filter rows: ppo does not hold 2410.18252";
  const count = document.createElement("output");
  const label = document.createElement("label");
  label.className = "row-filter";
  label.append(box, count);
  part.before(label);
  const groups = [...part.querySelectorAll("h2")].map((heading) => {
    const table = heading.nextElementSibling;
    const rows = [...table.querySelectorAll("tbody tr")];
    return { heading, table, rows: rows.map((row) => ({ row, text: row.textContent.toLowerCase() })) };
  });
  const all = groups.flatMap((group) => group.rows).length;
  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { heading, table, rows } of groups) {
      const title = heading.textContent.toLowerCase();
      const left = rows.filter(({ row, text }) => {
        row.hidden = !words.every((word) => text.includes(word) || title.includes(word));
        return !row.hidden;
      }).length;
      heading.hidden = table.hidden = !left;
      shown += left;
    }
    count.value = `${shown} of ${all} rows`;
  };
  box.addEventListener("input", filter);
  filter();
};
addEventListener("load", () => document.querySelectorAll(".searchable").forEach(makeSearchable));
