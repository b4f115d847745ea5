// -- the curve ------------------------------------------------------------------------------------------------------

const colour = (i) => `var(--c${data.curves[i].look[0]})`;
const marker = (i) => data.shapes.markers[data.curves[i].look[1]];
const dashes = (i) => data.shapes.dashes[data.curves[i].look[2]];
const thin = ({ look: [own, dashes] }) => ({ stroke: own === null ? "var(--grey)" : `var(--c${own})`, "stroke-width": 1.6, "stroke-dasharray": dashes });
const MOST_BANDS = 4; // of more lines, bands hide each other
const onFrontier = new Set((data.frontier[data.axis] ?? []).map(([label]) => label));
const bandKey = (label) => (data.curves.length > MOST_BANDS && !onFrontier.has(label) ? "other bands" : "band");
// A label names its LLMs in brackets where one method has several; where such lines are alike but for their colour, the
// key has each method and each LLM once.
const named = (c) => c.llms.join(" > ");
const method = (c) => c.label.replace(` (${named(c)})`, "");
const lines = (c) => data.curves.filter((other) => method(other) === method(c));
const crossed = (c) => lines(c).length > 1 && lines(c).every((other) => other.look[1] === c.look[1] && other.look[2] === c.look[2]);
const names = [...new Set(data.curves.flatMap((c) => c.llms))];
const brief = (llms) => llms.map(new Set(names.map(short)).size === names.length ? short : String).join(" > ");
const state = { axis: data.axis, hidden: new Set(["other bands"]), at: -1 };
const scaled = (axis, value) => (axis.scale ?? 1) * value;
const chosenAxis = () => data.axes.find((axis) => axis.key === state.axis);

function ticks(low, high, most) {
  let found = [];
  for (const digits of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7]]) {
    found = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade++)
      for (const digit of digits) {
        const tick = Number(`${digit}e${decade}`);
        if (tick >= low && tick <= high) found.push(tick);
      }
    if (found.length >= 4) break;
  }
  while (found.length > most) found = found.filter((_, i) => i % 2 === 0);
  return found;
}

function linearTicks(low, high) {
  const rough = (high - low) / 7;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * decade).find((s) => s >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step); tick * step <= high + 1e-9; tick++) found.push(Number((tick * step).toFixed(6)));
  return found;
}

// Everything with a place on the chosen axis, in drawing order; a log axis has no place for nothing.
function series() {
  const placed = (points) => points.filter((p) => p.x[state.axis] > 0).map((p) => ({ ...p, at: scaled(chosenAxis(), p.x[state.axis]) })).sort((a, b) => a.at - b.at);
  const all = [
    ...data.ceilings.map((c) => ({ ...c, kind: "ceiling", name: "ceiling " + c.label })),
    ...data.baselines.map((b) => ({ label: b.label, kind: "baseline", name: "baseline " + b.label, points: [b] })),
    ...data.curves.map((c, i) => ({ ...c, kind: "curve", i, keys: crossed(c) ? ["method " + method(c), "llm " + named(c)] : ["curve " + i] })),
  ];
  return all.map((s) => ({ ...s, points: placed(s.points) })).filter((s) => s.points.length && !(s.keys ?? [s.kind]).some((key) => state.hidden.has(key)));
}

function frontier() {
  if (state.hidden.has("frontier")) return [];
  return data.frontier[state.axis].map(([, x, y]) => [scaled(chosenAxis(), x), y]).filter(([x]) => x > 0);
}

const plot = svg("svg", { class: "plot", role: "group", tabindex: 0 });
const tip = el("div", { class: "tip", hidden: true });
const said = el("div", { class: "said", role: "status" });
let spots = [];

function drawPlot() {
  const width = Math.max(300, plot.parentNode.clientWidth), height = Math.round(Math.min(500, Math.max(320, width * 0.52)));
  const left = 46, right = 16, top = 14, bottom = 46;
  const drawn = series();
  plot.replaceChildren();
  plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
  plot.setAttribute("height", height);
  plot.setAttribute("aria-label", `Accuracy against ${chosenAxis().label}; arrow keys go through the points.`);
  spots = [];
  hideTip();
  if (!drawn.length) return plot.append(svg("text", { x: left, y: 60 }, "Nothing to show: every line is switched off."));
  const points = drawn.flatMap((s) => s.points);
  let [x0, x1] = [Math.min(...points.map((p) => p.at)), Math.max(...points.map((p) => p.at))];
  const margin = x1 < 1.2 * x0 ? 1.6 : (x1 / x0) ** 0.05;
  [x0, x1] = [x0 / margin, x1 * margin];
  const banded = (s) => !state.hidden.has(bandKey(s.label));
  const ends = drawn.flatMap((s) => s.points.flatMap((p) => [p.y, ...(banded(s) ? [p.low ?? p.y, p.high ?? p.y] : [])]));
  let y0 = Math.min(...ends), y1 = Math.max(...ends);
  const room = Math.max(0.05 * (y1 - y0), (0.08 - (y1 - y0)) / 2);
  [y0, y1] = [Math.max(y0 - room, 0), Math.min(y1 + room, 1)];
  const X = (v) => left + ((width - left - right) * Math.log(v / x0)) / Math.log(x1 / x0);
  const Y = (v) => height - bottom - ((height - top - bottom) * (v - y0)) / (y1 - y0);
  const path = (points, at) => points.map((p, i) => `${i ? "L" : "M"}${X(p.at).toFixed(1)} ${Y(at(p)).toFixed(1)}`).join("");

  for (const tick of linearTicks(100 * y0, 100 * y1)) {
    const y = Y(tick / 100);
    plot.append(svg("line", { x1: left, x2: width - right, y1: y, y2: y, stroke: "var(--line)" }));
    plot.append(svg("text", { x: left - 7, y: y + 4, "text-anchor": "end" }, `${tick}`));
  }
  for (const tick of ticks(x0, x1, Math.floor((width - left) / 62))) {
    const x = X(tick);
    plot.append(svg("line", { x1: x, x2: x, y1: top, y2: height - bottom, stroke: "var(--line)" }));
    plot.append(svg("text", { x, y: height - bottom + 17, "text-anchor": "middle" }, plain(tick)));
  }
  plot.append(svg("path", { d: `M${left} ${top}V${height - bottom}H${width - right}`, fill: "none", stroke: "var(--strong)" }));
  plot.append(svg("text", { class: "axis-name", x: width - right, y: height - 8, "text-anchor": "end" }, `${chosenAxis().label} (log scale)`));
  plot.append(svg("text", { class: "axis-name", x: left + 6, y: top + 11, stroke: "var(--paper)", "stroke-width": 3, "paint-order": "stroke" }, "accuracy, %"));

  for (const s of drawn.filter((s) => banded(s) && s.kind === "curve" && s.points.length > 1 && s.points.every((p) => p.low !== null)))
    plot.append(svg("path", { d: path(s.points, (p) => p.high) + path([...s.points].reverse(), (p) => p.low).replace("M", "L") + "Z", fill: colour(s.i), opacity: 0.13 }));
  for (const s of drawn.filter((s) => s.kind === "ceiling")) {
    plot.append(svg("path", { d: path(s.points, (p) => p.y), fill: "none", ...thin(s) }));
    if (s.points.length === 1) plot.append(svg("path", { d: `M${X(s.points[0].at) - 7} ${Y(s.points[0].y)}h14`, ...thin(s), "stroke-dasharray": "none" }));
  }
  const edge = frontier();
  if (edge.length) {
    const steps = edge.map(([x, y], i) => (i ? `H${X(x).toFixed(1)}V${Y(y).toFixed(1)}` : `M${X(x).toFixed(1)} ${Y(y).toFixed(1)}`)).join("");
    plot.append(svg("path", { d: `${steps}H${width - right}`, fill: "none", stroke: "var(--ink)", "stroke-width": 1.1, opacity: 0.6 }));
  }
  for (const s of drawn.filter((s) => s.kind === "curve")) {
    plot.append(svg("path", { d: path(s.points, (p) => p.y), fill: "none", stroke: colour(s.i), "stroke-width": 2.3, "stroke-linejoin": "round", "stroke-dasharray": dashes(s.i) }));
    let best = -1;
    for (const p of s.points) {
      const dominated = p.y <= best;
      best = Math.max(best, p.y);
      if (banded(s) && s.points.length === 1 && p.low !== null)
        plot.append(svg("line", { x1: X(p.at), x2: X(p.at), y1: Y(p.low), y2: Y(p.high), stroke: colour(s.i), "stroke-width": 3, opacity: 0.35 }));
      plot.append(svg("path", { d: marker(s.i), transform: `translate(${X(p.at).toFixed(1)} ${Y(p.y).toFixed(1)})`, ...(dominated ? { fill: "var(--paper)", stroke: colour(s.i), "stroke-width": 1.6 } : { fill: colour(s.i), stroke: "var(--paper)", "stroke-width": 1 }) }));
    }
  }
  // Names stand where they hide least of lines, counted along them, and of markers, and never on one another or on a circle:
  // where there is no room for one, a tap tells it.
  const circles = drawn.filter((s) => s.kind === "baseline").flatMap((s) => s.points.map((p) => [X(p.at) - 7, Y(p.y) - 7, X(p.at) + 7, Y(p.y) + 7]));
  const taken = [[left, top, left + 80, top + 16], ...circles];
  const crowd = drawn.filter((s) => s.kind !== "baseline").flatMap((s) => s.points.flatMap((p, i) => {
    const [x, y] = [X(p.at), Y(p.y)], q = s.points[i + 1];
    const along = q ? Array.from({ length: 24 }, (_, k) => [x + ((X(q.at) - x) * k) / 24, y + ((Y(q.y) - y) * k) / 24]) : [];
    return [...Array.from({ length: 12 }, () => [x, y]), ...along];
  }));
  for (const s of drawn.filter((s) => s.kind === "baseline"))
    for (const p of s.points) {
      const [x, y] = [X(p.at), Y(p.y)];
      plot.append(svg("circle", { cx: x, cy: y, r: 6.5, fill: "none", stroke: "var(--ink)", "stroke-width": 1.8 }));
      const name = short(safe(s.label)).slice(0, width < 560 ? 24 : 40), long = 6.4 * name.length;
      const hides = ([dx, dy]) => {
        const [l, t] = [x + dx - 3, y + dy - 8], [r, b] = [l + long + 6, t + 16];
        const outside = l < left || r > width - right || t < top || b > height - bottom;
        const other = taken.some(([l2, t2, r2, b2]) => l < r2 && r > l2 && t < b2 && b > t2);
        return (outside || other ? 1e6 : 0) + crowd.filter(([cx, cy]) => cx > l && cx < r && cy > t && cy < b).length;
      };
      const offsets = [17, -17, 31, -31, 45, -45].flatMap((dy) => [-5, -long + 5, -long / 2].map((dx) => [dx, dy])).concat([[12, 0], [-long - 10, 0]]);
      const [dx, dy] = offsets.reduce((best, o) => (hides(o) < hides(best) ? o : best));
      if (hides([dx, dy]) >= 1e6) continue;
      taken.push([x + dx - 3, y + dy - 8, x + dx + long + 3, y + dy + 8]);
      plot.append(svg("text", { class: "name", x: x + dx, y: y + dy + 4 }, name));
    }
  spots = drawn.flatMap((s) => s.points.map((p) => ({ s, p, x: X(p.at), y: Y(p.y), width, height })));
  spots.sort((a, b) => a.x - b.x || a.y - b.y);
}

const KINDS = { ceiling: "pass@n ceiling", baseline: "single call" };
function told(spot) {
  const { s, p } = spot;
  const found = [];
  const budget = [KINDS[s.kind], p.b, (s.llms || []).join(" > ")].filter(Boolean).join(", ");
  if (budget) found.push(budget);
  const band = p.low === null || p.low === undefined ? "" : ` (${data.band}: ${percent(p.low)} to ${percent(p.high)})`;
  found.push(`accuracy ${percent(p.y)} %${band}`);
  for (const axis of data.axes) if (p.x[axis.key] !== null && p.x[axis.key] !== undefined) found.push(`${plain(scaled(axis, p.x[axis.key]))} ${axis.unit}`);
  if (p.kind) found.push(p.kind);
  return found;
}

function showTip(spot) {
  state.at = spots.indexOf(spot);
  plot.querySelector(".ring")?.remove();
  plot.append(svg("circle", { class: "ring", cx: spot.x, cy: spot.y, r: 9, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }));
  const words = told(spot);
  tip.replaceChildren(el("b", null, spot.s.label), ...words.map((line) => el("div", null, line)));
  tip.hidden = false;
  const scale = plot.clientWidth / spot.width;
  const x = spot.x * scale, y = spot.y * scale;
  tip.style.left = `${Math.max(0, Math.min(x + 14, plot.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${y + tip.offsetHeight + 22 > plot.clientHeight ? Math.max(0, y - tip.offsetHeight - 14) : y + 16}px`;
  return words;
}
function hideTip() {
  tip.hidden = true;
  state.at = -1;
  plot.querySelector(".ring")?.remove();
}
function nearest(event) {
  const box = plot.getBoundingClientRect();
  if (!spots.length) return;
  const scale = spots[0].width / box.width;
  const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  const far = (s) => (s.x - x) ** 2 + (s.y - y) ** 2;
  const found = spots.reduce((best, s) => (far(s) < far(best) ? s : best));
  if (far(found) < 40 ** 2) { if (spots[state.at] !== found) showTip(found); } else hideTip();
}
plot.addEventListener("pointermove", nearest);
plot.addEventListener("pointerdown", nearest);
plot.addEventListener("pointerleave", hideTip);
plot.addEventListener("blur", hideTip);
plot.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
  if (event.key === "Escape") hideTip();
  if (!step || !spots.length) return;
  event.preventDefault();
  const at = state.at < 0 ? (step > 0 ? 0 : spots.length - 1) : (state.at + step + spots.length) % spots.length;
  said.textContent = safe([spots[at].s.label, ...showTip(spots[at])].join(", "));
});

function swatch(s) {
  const made = svg("svg", { width: s.kind === "curve" ? 44 : 30, height: 14, viewBox: s.kind === "curve" ? "-7 0 44 14" : "0 0 30 14", "aria-hidden": "true" });
  if (s.kind === "curve") {
    const ink = s.plain ? "var(--soft)" : colour(s.i);
    made.append(svg("path", { d: "M-6 7H36", stroke: ink, "stroke-width": 2.3, "stroke-dasharray": dashes(s.i) }));
    made.append(svg("path", { d: marker(s.i), transform: "translate(15 7)", fill: ink }));
  } else if (s.kind === "llm") {
    made.append(svg("path", { d: "M1 7H29", stroke: colour(s.i), "stroke-width": 5 }));
  } else if (s.kind === "baseline") made.append(svg("circle", { cx: 15, cy: 7, r: 5, fill: "none", stroke: "var(--ink)", "stroke-width": 1.8 }));
  else if (s.kind === "ceiling") made.append(svg("path", { d: "M1 7H29", ...thin(data.ceilings[s.i] ?? { look: [null, data.ceilings[0].look[1]] }) }));
  else if (s.kind === "frontier") made.append(svg("path", { d: "M1 12H10V7H20V2H29", fill: "none", stroke: "var(--ink)", opacity: 0.6 }));
  else made.append(svg("rect", { x: 3, y: 2, width: 24, height: 10, fill: "var(--grey)", opacity: 0.3 }));
  return made;
}

function toggles() {
  const entries = [], keyed = new Set();
  const add = (entry) => { if (!keyed.has(entry.key)) entries.push(entry); keyed.add(entry.key); };
  data.curves.forEach((c, i) => { if (crossed(c)) add({ kind: "llm", i, key: "llm " + named(c), label: brief(c.llms), title: named(c) }); });
  data.curves.forEach((c, i) => add(crossed(c) ? { kind: "curve", i, plain: true, key: "method " + method(c), label: method(c) } : { kind: "curve", i, key: "curve " + i, label: c.label.replace(named(c), brief(c.llms)), title: c.label }));
  if (data.baselines.length) entries.push({ kind: "baseline", key: "baseline", label: "single call" });
  // where colours tell them apart, or nothing can, one entry stands for all
  const ceilings = data.ceilings.length > 1 && (data.ceilings.length > 4 || new Set(data.ceilings.map((c) => c.look[1])).size === 1) ? [] : data.ceilings;
  if (data.ceilings.length > ceilings.length) entries.push({ kind: "ceiling", key: "ceiling", label: "pass@n ceiling of each LLM" });
  ceilings.forEach((c, i) => entries.push({ kind: "ceiling", i, key: "ceiling", label: `pass@n ceiling of ${brief([c.label])}`, title: `pass@n ceiling of ${c.label}` }));
  entries.push({ kind: "frontier", key: "frontier", label: "Pareto frontier" });
  const few = data.curves.length <= MOST_BANDS;
  if (data.band && data.curves.some((c) => bandKey(c.label) === "band")) entries.push({ kind: "band", key: "band", label: data.band + (few ? "" : ", on the frontier") });
  if (data.band && data.curves.some((c) => bandKey(c.label) !== "band")) entries.push({ kind: "band", key: "other bands", label: data.band + ", others" });
  const list = el("ul", { class: "legend", "aria-label": "Lines of the figure; press one to hide it" });
  const press = (entry) => {
    state.hidden.has(entry.key) ? state.hidden.delete(entry.key) : state.hidden.add(entry.key);
    for (const button of list.querySelectorAll("button")) button.setAttribute("aria-pressed", String(!state.hidden.has(button.dataset.key)));
    drawPlot();
  };
  for (const entry of entries)
    list.append(el("li", null, el("button", { type: "button", "aria-pressed": String(!state.hidden.has(entry.key)), "data-key": entry.key, title: entry.title, onclick: () => press(entry) }, swatch(entry), entry.label)));
  return list;
}

// -- files: the figure as PNG, its points as CSV --------------------------------------------------------------------------

// The figure stands alone in the picture, so colours that the page's style names are written out.
function savePicture() {
  const [, , width, height] = plot.getAttribute("viewBox").split(" ").map(Number), style = getComputedStyle(document.documentElement);
  const names = ["paper", "ink", "soft", "line", "strong", "grey", ...data.shapes.markers.map((_, i) => "c" + i)];
  const key = [...document.querySelectorAll("#curve .legend button[aria-pressed=true]")].filter((button) => !button.dataset.key.includes("band"));
  const rows = Math.ceil(key.length / 2), whole = plot.cloneNode(true);
  whole.querySelector(".ring")?.remove();
  for (const [name, value] of Object.entries({ xmlns: SVG, viewBox: `0 0 ${width} ${height + 20 * rows + 14}`, width, height: height + 20 * rows + 14,
    style: names.map((name) => `--${name}: ${style.getPropertyValue("--" + name).trim()}`).join(";") + ";font: 12px sans-serif" })) whole.setAttribute(name, value);
  whole.prepend(svg("style", null, "text { fill: var(--soft); font: 12px sans-serif } .name, .axis-name, .key { fill: var(--ink) } .name { stroke: var(--paper); stroke-width: 3px; paint-order: stroke }"),
    svg("rect", { width: "100%", height: "100%", fill: "var(--paper)" }));
  key.forEach((button, i) => {
    const line = button.querySelector("svg").cloneNode(true), [x, y] = [12 + (i % 2) * (width / 2), height + 8 + 20 * Math.floor(i / 2)];
    for (const [name, value] of Object.entries({ x, y })) line.setAttribute(name, value);
    whole.append(line, svg("text", { class: "key", x: x + 52, y: y + 11 }, button.textContent));
  });
  const picture = new Image();
  picture.onload = () => {
    const canvas = el("canvas", { width: 2 * whole.getAttribute("width"), height: 2 * whole.getAttribute("height") });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save("curve.png", blob));
  };
  picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(whole));
}

function savePoints() {
  const rows = series().flatMap((s) => s.points.map((p) => [KINDS[s.kind] ?? "method", s.label, p.b, p.y, p.low, p.high, ...data.axes.map((axis) => p.x[axis.key])]));
  saveTable("curve.csv", ["kind", "label", "budget", "accuracy", "accuracy_low", "accuracy_high", ...data.axes.map((axis) => `${axis.key}_per_question`)], rows);
}
