// Elements out of values. What comes from elsewhere only ever becomes text, never markup.

// draw("td", {className: "number"}, "12", child…); null and undefined children are left out.
export function draw(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Columns: {title, of: row => text or element, number: true where digits line up}.
export function table(columns, rows, nothing) {
  if (rows.length === 0) return draw("p", { className: "soft" }, nothing);
  const side = (column) => (column.number ? "number" : "");
  return draw(
    "table", {},
    draw("thead", {}, draw("tr", {}, ...columns.map((column) => draw("th", { className: side(column) }, column.title)))),
    draw("tbody", {}, ...rows.map((row) => draw("tr", {}, ...columns.map((column) => draw("td", { className: side(column) }, column.of(row)))))),
  );
}

export function byId(id) {
  return document.getElementById(id);
}
