const SVG = "http://www.w3.org/2000/svg";
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");
const narrow = matchMedia("(max-width: 560px)").matches; // a phone is given less at once

// -- making elements: text only ever becomes a text node ------------------------------------------------------------

// Control and direction characters could reorder or hide what stands around them; they are spelled out.
const UNSAFE = /(?![\t\n])[\p{Cc}\p{Cf}\u2028\u2029]/gu; // as `report.text.visible` has them
const safe = (text) => String(text).replace(UNSAFE, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== false && value !== undefined) node.setAttribute(name, safe(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : document.createTextNode(safe(child)));
  }
  return node;
}
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

function section(id, link, title, ...children) {
  const made = el("section", { id, "aria-labelledby": id + "-title", "data-link": link }, el("h2", { id: id + "-title" }, title), ...children);
  main.append(made);
  return made;
}

// -- numbers --------------------------------------------------------------------------------------------------------

const percent = (share) => (100 * share).toFixed(2);
function plain(value) {
  if (!value) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  const text = Math.abs(value) < 1000 ? value.toFixed(Math.min(digits, 18)) : Math.round(value).toLocaleString("en");
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

// -- parts that pages share ---------------------------------------------------------------------------------------

function choice(name, options, chosen, act) {
  const made = el("span", { class: "choice", role: "group", "aria-label": name });
  for (const [key, label] of options)
    made.append(el("button", { type: "button", "data-key": key, "aria-pressed": String(key === chosen), onclick: () => {
      for (const button of made.children) button.setAttribute("aria-pressed", String(button.dataset.key === key));
      act(key);
    } }, label));
  return made;
}

// A file of the reader's own: made here, and never sent anywhere.
function save(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// CSV; text that a spreadsheet would take for a formula stands behind an apostrophe.
function saveTable(name, heads, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : typeof value === "string" && /^[=+\-@\t\r\n]/.test(value) ? "'" + value : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  save(name, new Blob([[heads, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("")], { type: "text/csv" }));
}

// What may be wider than the screen: it fades at the right for as long as more is there.
function scroller(node) {
  const look = () => node.classList.toggle("more", node.scrollLeft + node.clientWidth < node.scrollWidth - 2);
  const seen = new ResizeObserver(look);
  for (const each of [node, ...node.children]) seen.observe(each);
  node.addEventListener("scroll", look);
  return node;
}

// Lays out all for printing what the screen shows in part, and afterwards as it was.
function printing(before, after) {
  addEventListener("beforeprint", before);
  addEventListener("afterprint", after);
}
const action = (label, act) => el("button", { type: "button", class: "plainly", onclick: act }, label);

// -- questions ------------------------------------------------------------------------------------------------------

const short = (name) => name.split("/").pop();
const PAGE = narrow ? 10 : 25;
const word = (q, code) => (code < 0 ? "no answer" : code < q.a.length ? q.a[code] : "an answer no CoT gave");
// `right` is a share where verdicts judge the CoT; `q.p` has those of answers whose CoTs are judged differently.
const tone = (q, code, right = q.p?.[code]) => (right > 0 ? (right < 1 ? "partly" : "right") : code < 0 ? "none" : right === undefined && q.k >= 0 && code === q.k ? "right" : "wrong");
const sign = { right: "✓", wrong: "✗", none: "–", partly: "◐" };
const TONES = [["right", "✓", "right"], ["wrong", "✗", "wrong"], ["none", "–", "no answer"]];

// What marks mean: class and text of each, and words.
const keys = (entries) => el("ul", { class: "legend" }, ...entries.map(([kind, mark, words]) =>
  el("li", null, el("span", { class: "key" }, el("span", { class: "mark " + kind, "aria-hidden": "true" }, mark), words))));

// Names over the marks of a list, where a row of marks fits in one line.
function heads(names, rem) {
  const wide = names.length * (rem + 0.2);
  return wide > 60 ? null : el("li", { class: wide > 32 ? "heads wider" : wide > 20 ? "heads wide" : "heads" }, el("span"),
    el("span", { class: "marks", style: `--mark: ${rem}rem` }, ...names.map((name) => el("span", { title: name }, name))));
}

// A list that is shown a page at a time; `show` takes what it is to hold.
function paged(item, total, noun, head) {
  let [found, page] = [[], 0];
  const list = el("ol", { class: "questions" }), count = el("span", { role: "status" }), where = el("span");
  const turn = (by) => { page += by; put(); list.querySelector("button")?.focus(); };
  const back = el("button", { type: "button", onclick: () => turn(-1) }, "← Previous");
  const next = el("button", { type: "button", onclick: () => turn(1) }, "Next →");
  function put() {
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    list.replaceChildren(...(head && found.length ? [head] : []), ...found.slice(page * PAGE, (page + 1) * PAGE).map(item));
    count.textContent = `${found.length.toLocaleString("en")} of ${total.toLocaleString("en")} ${noun}`;
    where.textContent = `page ${page + 1} of ${pages}`;
    back.disabled = page === 0;
    next.disabled = page === pages - 1;
  }
  return { show: (items) => { [found, page] = [items, 0]; put(); }, parts: [el("p", { class: "note" }, count), list, el("div", { class: "pager" }, back, where, next)] };
}

// An entry of the list of questions, which opens what `detail` makes.
function entry(q, marks, detail) {
  const row = el("li");
  const button = el("button", { type: "button", "aria-expanded": "false", onclick: () => {
    const opened = row.querySelector(".open");
    button.setAttribute("aria-expanded", String(!opened));
    opened ? opened.remove() : row.append(detail());
  } }, el("span", null, el("span", { class: "id" }, q.i), el("span", { class: "what", dir: "auto" }, q.q)), marks);
  row.append(button);
  return row;
}

const asked = (q) => [
  el("div", { class: "text", dir: "auto" }, q.q),
  q.c.length ? el("ul", { class: "choices" }, ...q.c.map(([label, text]) => el("li", null, el("b", null, label), label === text ? "" : ` ${text}`))) : "",
  el("p", null, "Gold: ", q.g === null ? el("i", null, "none") : el("b", { dir: "auto" }, q.g)),
];

// A text with its answer marked; of a conversation (`looking.by_role`), tool calls, what tools reply and what a system
// prompt says are folded.
function spoken(text, span) {
  const piece = (from, to) => {
    const [start, end] = (span ?? [to, to]).map((at) => Math.min(Math.max(at, from), to));
    return [text.slice(from, start), start < end ? el("mark", null, text.slice(start, end)) : "", text.slice(end, to)];
  };
  const nodes = [], roles = /^── [^\n]* ──(\n|$)/.test(text);
  let done = 0;
  for (const found of roles ? text.matchAll(/^── (?:tool|system) ──$[^]*?(?=\n\n── [^\n]* ──$|(?![^]))|^\[calls .*$/gm) : []) {
    const [whole] = found, end = found.index + whole.length, isCall = whole.startsWith("[calls ");
    const from = found.index + (isCall ? 7 : Math.min(whole.indexOf(" ──\n") + 4, whole.length)), said = text.slice(from, isCall ? end - 1 : end);
    const what = isCall ? `calls ${/"name": "([^"]*)"/.exec(said)?.[1] ?? ""}` : whole.split("\n", 1)[0];
    nodes.push(...piece(done, found.index), el("details", null, el("summary", null, `${what} ${said.slice(0, 80).replace(/\s+/g, " ")}${said.length > 80 ? "…" : ""} (${said.length.toLocaleString("en")} characters)`),
      el("div", { class: "text" }, ...piece(from, isCall ? end - 1 : end))));
    done = end + Number(text[end] === "\n"); // a block ends its line
  }
  return [...nodes, ...piece(done, text.length)];
}

// Links to the sections; the page is ready.
function navigation() {
  const reveal = (id) => main.querySelector(`#${CSS.escape(id)} > details`)?.setAttribute("open", "");
  const links = [...main.querySelectorAll("section")].map((s) => el("li", null, el("a", { href: "#" + s.id, onclick: () => reveal(s.id) }, s.dataset.link)));
  const list = document.querySelector("nav ul");
  list.append(...links);
  scroller(list);
  const named = () => { if (location.hash) reveal(location.hash.slice(1)); };
  addEventListener("hashchange", named);
  named();
  let opened = [];
  printing(() => {
    opened = [...main.querySelectorAll("details:not([open])")];
    for (const each of opened) each.open = true;
  }, () => { for (const each of opened) each.open = false; });
  document.documentElement.dataset.ready = "yes";
}
