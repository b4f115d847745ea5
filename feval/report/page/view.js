const blocks = document.querySelectorAll("script.block");
const texts = (q) => JSON.parse(blocks[q.t].textContent); // of one question; parsed anew whenever it is opened
data.questions.forEach((q, i) => { q.t = i; });

const view = { dataset: -1, llm: -1, verdict: "all", finish: -1, order: "hardest", search: "" };
const VERDICTS = {
  all: (q, code) => code > -2,
  right: (q, code, right) => q.k >= 0 && (right ?? Number(code === q.k)) > 0,
  wrong: (q, code, right) => q.k >= 0 && code >= 0 && (right ?? Number(code === q.k)) < 1,
  none: (q, code) => code === -1,
};
const chosen = (q) => data.llms.map((_, l) => l).filter((l) => q.d[l] && (view.llm < 0 || view.llm === l));
const fits = (q, l, s) => VERDICTS[view.verdict](q, q.d[l][0][s], q.d[l][3][s]) && (view.finish < 0 || q.d[l][2][s] === view.finish);
const filtered = () => view.verdict !== "all" || view.finish >= 0 || view.llm >= 0;
const matching = (q) => !filtered() || chosen(q).some((l) => q.d[l][0].some((_, s) => fits(q, l, s)));

// Share of an LLM's CoTs that are right, and how often each answer came.
function accuracy(q, l) {
  const shares = q.d[l] ? q.d[l][0].map((code, s) => (code > -2 ? q.d[l][3][s] ?? Number(code === q.k) : null)).filter((share) => share !== null) : [];
  return q.k < 0 || !shares.length ? null : shares.reduce((a, b) => a + b) / shares.length;
}
function counts(q, l) {
  const found = new Map();
  for (const code of q.d[l][0]) if (code > -2) found.set(code, (found.get(code) ?? 0) + 1);
  return found;
}
function difficulty(q) {
  const shares = chosen(q).map((l) => accuracy(q, l)).filter((share) => share !== null);
  return shares.length ? shares.reduce((a, b) => a + b) / shares.length : 2;
}

// -- search: questions and answers first, then texts, whose blocks are parsed only where they hold the words ----------

const haystacks = new Map();
function named(q, wanted) {
  if (!haystacks.has(q)) haystacks.set(q, [q.i, q.q, q.g ?? "", ...q.a].join("\n").toLowerCase());
  return haystacks.get(q).includes(wanted);
}
const spelled = (text) => JSON.stringify(text).slice(1, -1).replace(/[<>&\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const holds = (text, wanted) => Boolean(text) && text.toLowerCase().includes(wanted);
const said = (own, s, wanted) => holds(own.x[s], wanted) || holds(own.r?.[s], wanted);
function written(q, wanted) {
  if (!blocks[q.t].textContent.toLowerCase().includes(spelled(wanted))) return false;
  const own = texts(q);
  return chosen(q).some((l) => own[data.llms[l]].x.some((_, s) => said(own[data.llms[l]], s, wanted)));
}

const list = paged(item, data.questions.length, "questions", heads(data.llms.map(short), 2.1));
let latest = 0, timer = null;
async function put() {
  const ticket = ++latest, wanted = view.search;
  const candidates = data.questions.filter((q) => (view.dataset < 0 || q.n === view.dataset) && matching(q));
  const found = [];
  for (const [i, q] of candidates.entries()) {
    if (!wanted || named(q, wanted) || written(q, wanted)) found.push(q);
    if (wanted && i % 100 === 99) await new Promise((later) => setTimeout(later));
    if (ticket !== latest) return;
  }
  if (view.order === "hardest") {
    const hard = new Map(found.map((q) => [q, difficulty(q)]));
    found.sort((a, b) => hard.get(a) - hard.get(b) || a.t - b.t);
  }
  list.show(found);
}

// -- a question -----------------------------------------------------------------------------------------------------

const percents = (share) => (share === null ? "–" : String(Math.round(100 * share)));
function item(q) {
  const marks = data.llms.map((name, l) => {
    const share = accuracy(q, l), at = share === null ? 0 : 100 * share;
    return el("span", { class: "mark share", title: `${name}: ${percents(share)} % right`,
      style: share === null ? null : `background: linear-gradient(to top, var(--right-fill) ${at}%, var(--wrong-fill) ${at}%)` }, percents(share));
  });
  return entry(q, el("span", { class: "marks" }, ...marks), () => detail(q));
}

function detail(q) {
  const own = texts(q);
  return el("div", { class: "open" }, data.datasets.length > 1 ? el("p", { class: "note" }, data.datasets[q.n]) : null, ...asked(q),
    histogram(q), ...chosen(q).flatMap((l) => pool(q, l, own[data.llms[l]])));
}

// How many CoTs of each LLM gave each answer.
function histogram(q) {
  const MOST = 15, own = new Map(chosen(q).map((l) => [l, counts(q, l)]));
  const total = new Map();
  for (const each of own.values()) for (const [code, count] of each) total.set(code, (total.get(code) ?? 0) + count);
  const codes = [...total.keys()].sort((a, b) => (a < 0) - (b < 0) || total.get(b) - total.get(a));
  const colour = new Map(codes.map((code) => [code, tone(q, code)]));
  const shown = codes.filter((code, i) => i < MOST || code < 0 || ["right", "partly"].includes(colour.get(code)));
  const most = Math.max(1, ...[...own.values()].flatMap((each) => [...each.values()]));
  const bar = (code, count) => el("td", null, count ? el("span", { class: "bar " + colour.get(code), style: `width: ${(100 * count) / most}%` }, String(count)) : null);
  const rows = shown.map((code) => el("tr", null, el("th", { scope: "row", class: colour.get(code), dir: "auto" }, `${sign[colour.get(code)]} ${word(q, code)}`), ...[...own.values()].map((each) => bar(code, each.get(code)))));
  return scroller(el("div", { class: "scroll" }, el("table", { class: "histogram" }, el("caption", null, "Bars: how many CoTs gave each answer"), el("thead", null, el("tr", null, el("th", null, "answer"), ...[...own.keys()].map((l) => el("th", { scope: "col", title: data.llms[l] }, short(data.llms[l]))))),
    el("tbody", null, ...rows)), codes.length > shown.length ? el("p", { class: "note" }, `and ${codes.length - shown.length} rarer answers`) : null));
}

function pool(q, l, own) {
  const name = data.llms[l], [codes, tokens] = q.d[l], mark = (asked, code) => sign[tone(asked, code)];
  if (own.tree) return [el("h3", null, name, " ", el("span", { class: "badge" }, own.kind)), ...depth({ el, svg, plain }).tree(q, own.tree, own.scorers, null, -1, word, tone, mark),
    codes.length > own.tree.length ? el("p", { class: "note" }, `The first ${own.tree.length} of ${codes.length} steps.`) : null];
  const wanted = view.search && !named(q, view.search) ? view.search : "";
  const fitting = codes.map((_, s) => fits(q, l, s) && (!wanted || said(own, s, wanted)));
  const holder = el("div", { "aria-live": "polite" }), boxes = new Map();
  const cells = codes.map((code, s) => el("button", { type: "button", class: `cell ${tone(q, code, q.d[l][3][s])}${fitting[s] ? "" : " unread"}`, "aria-pressed": "false",
    "aria-label": `CoT ${s} of ${name}: ${word(q, code)}`, title: `${word(q, code)}, ${tokens[s]} tokens${q.d[l][3].length ? `, ${q.d[l][3][s]} right` : ""}`, onclick: () => toggle(s) }, code < 0 ? "–" : word(q, code)));
  function toggle(s, open = !boxes.has(s)) {
    cells[s].setAttribute("aria-pressed", String(open));
    if (!open) boxes.get(s)?.remove(), boxes.delete(s);
    else if (!boxes.has(s)) {
      boxes.set(s, cot(q, l, s, own));
      const after = [...boxes.keys()].filter((other) => other > s).sort((a, b) => a - b)[0];
      holder.insertBefore(boxes.get(s), after === undefined ? null : boxes.get(after));
    }
  }
  const count = fitting.filter(Boolean).length;
  const all = el("button", { type: "button", class: "plainly", onclick: () => {
    const open = all.textContent.startsWith("Read");
    fitting.forEach((fit, s) => { if (fit) toggle(s, open); });
    all.textContent = open ? "Close all" : `Read all ${count}`;
  } }, `Read all ${count}`);
  return [el("h3", null, name, " ", el("span", { class: "badge" }, count === codes.length ? `${count} CoTs` : `${count} of ${codes.length} CoTs match`), " ", count ? all : null),
    el("div", { class: "strip" }, ...cells), holder,
    ...(own.t ? depth({ el, svg, plain }).traces(q, own.t, q.d[l], codes.length, null, word, mark, true) : [])];
}

// One CoT: its answer is marked in its text, its thoughts are folded.
function cot(q, l, s, own) {
  const [codes, tokens, finish, right] = q.d[l], kind = tone(q, codes[s], right[s]), text = own.x[s], span = own.s[s], thoughts = own.r?.[s];
  const scores = Object.entries(own.p ?? {}).filter(([, values]) => values[s] !== null).map(([name, values]) => `${name} ${Number(values[s].toPrecision(4))}`);
  const about = [`CoT ${s} of ${data.llms[l]}`, tokens[s] ? `${plain(tokens[s])} tokens` : "unknown", data.finish[finish[s]], ...scores].filter((part) => part !== "unknown").join(", ");
  return el("div", { class: "cot" }, el("div", { class: "id" }, about, " ", el("span", { class: "mark-answer " + kind }, `${sign[kind]} ${word(q, codes[s])}${kind === "partly" ? `, ${right[s]} right` : ""}`)),
    thoughts ? el("details", null, el("summary", null, `Reasoning, ${thoughts.length.toLocaleString("en")} characters`), el("div", { class: "text", dir: "auto" }, thoughts)) : null,
    text === null ? el("p", { class: "note" }, "No text was recorded.")
      : el("div", { class: "text", dir: "auto" }, ...spoken(text, span)));
}

// -- the page -------------------------------------------------------------------------------------------------------

const menu = (label, names, act) => {
  const made = el("select", { class: "field", onchange: () => { act(made.selectedIndex - 1); put(); } }, ...names.map((name) => el("option", null, name)));
  return el("label", null, label + " ", made);
};
const finishes = [...new Set(data.questions.flatMap((q) => q.d.flatMap((own) => (own ? own[2] : []))))];
const search = el("input", { class: "field", type: "search", placeholder: "Search questions, answers and texts", "aria-label": "Search questions, answers and texts",
  oninput: () => { clearTimeout(timer); timer = setTimeout(() => { view.search = search.value.trim().toLowerCase(); put(); }, 150); } });
section("questions", "Questions", "Questions",
  el("p", { class: "lede" }, "Open a question to see its answers, and a CoT to read it."),
  ...data.notes.map((note) => el("p", { class: "note" }, note)),
  el("div", { class: "controls" }, choice("CoTs shown", [["all", "All CoTs"], ["right", "Right"], ["wrong", "Wrong"], ["none", "No answer"]], "all", (key) => { view.verdict = key; put(); }),
    choice("Order", [["hardest", "Hardest first"], ["recorded", "As recorded"]], "hardest", (key) => { view.order = key; put(); })),
  el("div", { class: "controls" },
    data.datasets.length > 1 ? menu("Dataset", ["all", ...data.datasets], (i) => { view.dataset = i; }) : null,
    data.llms.length > 1 ? menu("LLM", ["all", ...data.llms], (i) => { view.llm = i; }) : null,
    finishes.length > 1 ? menu("Finish reason", ["any", ...finishes.map((i) => data.finish[i])], (i) => { view.finish = i < 0 ? -1 : finishes[i]; }) : null, search),
  keys([["share half", "50", "an LLM's CoTs that are right, in per cent"], ...TONES, ...(data.questions.some((q) => q.p) ? [["partly", "◐", "in part, or some of its CoTs"]] : []), ["unread", "7", "left out by the filters"]]), ...list.parts).classList.add("long");
put();
for (const spec of data.tables) section(spec.id, spec.link, spec.title, el("p", { class: "lede" }, spec.intro), table(spec));
section("provenance", "Provenance", "Where it comes from", el("dl", { class: "facts" }, ...data.facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])));
navigation();
