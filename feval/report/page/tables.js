const LONG = 30; // rows of a table of pairs that are shown at once without being asked for
const FIRST = narrow ? 6 : 10; // rows of a table that are made at once; the others when they are asked for

const shown = (cell) => (cell !== null && typeof cell === "object" ? cell.t : cell);
const key = (cell) => (cell !== null && typeof cell === "object" ? cell.s : cell);

function interval({ i: [low, middle, high], open }, reach) {
  const X = (v) => 60 + (56 * v) / reach;
  const filled = !open && (low > 0 || high < 0);
  return svg("svg", { width: 120, height: 18, viewBox: "0 0 120 18", role: "img", "aria-label": `${low} to ${high}` },
    svg("line", { x1: 60, x2: 60, y1: 1, y2: 17, stroke: "var(--strong)" }),
    svg("line", { x1: X(low), x2: X(high), y1: 9, y2: 9, stroke: "var(--ink)", "stroke-width": 1.6 }),
    svg("circle", { cx: X(middle), cy: 9, r: 3.4, fill: filled ? "var(--accent)" : "var(--paper)", stroke: filled ? "var(--accent)" : "var(--ink)", "stroke-width": 1.5 }));
}

// Words that break into two lines only where one alone is too long: names have hyphens, and fields in brackets.
const unbroken = (text) => (String(text).match(/ |\(?[^ (]+|\(/g) ?? []).map((part) => (part === " " ? part : el("span", { class: "word" }, part)));

// A text that is as long as a paragraph begins in its row and can be opened.
function folded(value) {
  const text = String(value), start = text.length > 240 ? text.lastIndexOf(" ", 120) : -1;
  return start < 0 ? unbroken(text) : el("details", null, el("summary", null, unbroken(text.slice(0, start))), unbroken(text.slice(start)));
}

function table(spec) {
  const body = el("tbody");
  const reach = spec.columns.map((_, i) => Math.max(1e-12, ...spec.rows.filter((r) => r[i] && r[i].i).flatMap((r) => r[i].i.map(Math.abs))));
  const cell = (value, i) => value && value.i
    ? el("td", { class: "number" }, interval(value, reach[i]))
    : spec.columns[i].number ? el("td", { class: "number" }, String(shown(value) ?? "-").replace("< ", "<\u00a0"))
      : el("td", { class: ["words", "words long", "words long prose"][(String(shown(value)).length > 24) + (String(shown(value)).length > 99)] }, folded(shown(value) ?? "-"));
  const put = (rows) => body.replaceChildren(...rows.map((row) => el("tr", null, ...row.map(cell))));
  const compare = (a, b, sign) => {
    const none = (v) => v === null || v === undefined;
    if (none(a) || none(b)) return none(a) - none(b); // nothing known stands last either way
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  };
  const heads = spec.columns.map((column, i) => {
    const head = el("th", { scope: "col", class: column.number ? "number" : null });
    head.append(el("button", { type: "button", onclick: () => {
      const up = head.getAttribute("aria-sort") === (column.number ? "descending" : "ascending") ? !column.number : Boolean(column.number);
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "descending" : "ascending");
      order = (a, b) => compare(key(a[i]), key(b[i]), up ? -1 : 1);
      again();
    }, title: column.title }, column.name));
    return head;
  });
  // Pairs grow with the square of the methods: a long table of them starts with those of one method, and all can be had.
  let [rows, pick, order] = [spec.rows, null, null];
  let whole = spec.rows.length <= FIRST + 2;
  const more = action("", () => { whole = true; again(); });
  const again = () => {
    const sorted = order ? [...rows].sort(order) : rows;
    put(whole ? sorted : sorted.slice(0, FIRST));
    more.hidden = whole || sorted.length <= FIRST;
    more.textContent = `Show all ${sorted.length} rows`;
  };
  if (spec.pairs && spec.rows.length > LONG) {
    const labels = [...new Set(spec.rows.flatMap((row) => [row[0], row[1]]))];
    const count = el("span", { class: "note", role: "status" });
    const choose = (label) => {
      rows = label === undefined ? spec.rows : spec.rows.filter((row) => row[0] === label || row[1] === label);
      count.textContent = `${rows.length} of ${spec.rows.length} rows`;
      again();
    };
    const menu = el("select", { class: "field", onchange: () => choose(labels[menu.selectedIndex - 1]) },
      el("option", null, "all methods"), ...labels.map((label) => el("option", null, label)));
    menu.selectedIndex = labels.indexOf(spec.pairs) + 1;
    pick = el("div", { class: "controls" }, el("label", null, "pairs with ", menu), count);
    choose(labels[menu.selectedIndex - 1]);
  }
  again();
  printing(() => put(order ? [...spec.rows].sort(order) : spec.rows), again);
  const frame = scroller(el("div", { class: spec.pairs ? "scroll pairs" : "scroll", tabindex: 0, role: "region", "aria-label": spec.title },
    el("table", null, el("thead", null, el("tr", null, ...heads)), body)));
  const numbers = (value) => { const text = shown(value); return /^[-+]?[\d,]+(\.\d+)?$/.test(text) ? Number(text.replaceAll(",", "")) : text; };
  const csv = action("CSV", () => saveTable(`${spec.id}.csv`, spec.columns.map((column) => column.name), (order ? [...rows].sort(order) : rows).map((row) => row.map(numbers))));
  const dot = (open) => interval({ i: [0.2, 0.5, 0.8], open }, 1);
  const dots = spec.rows.some((row) => row.some((value) => value && value.i))
    ? el("ul", { class: "legend" }, ...[["the interval leaves 0 out", false], ["it has 0, or nothing was tested", true]].map(([words, open]) => el("li", null, el("span", { class: "key" }, dot(open), words)))) : null;
  return [pick, frame, dots, el("div", { class: "under" }, more, csv)];
}
