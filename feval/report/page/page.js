"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.querySelector("main");
  const PAGE = 25;
  const LONG = 30; // rows of a table of pairs that are shown at once without being asked for

  // -- making elements: text only ever becomes a text node ------------------------------------------------------------

  // Control and direction characters could reorder or hide what stands around them; they are spelled out.
  const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
  const safe = (text) => String(text).replace(UNSAFE, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

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

  // -- the curve ------------------------------------------------------------------------------------------------------

  const colour = (i) => `var(--c${i % 7})`;
  const MARKERS = [
    "M-4.6 0a4.6 4.6 0 1 0 9.2 0a4.6 4.6 0 1 0-9.2 0Z", "M-4.2-4.2H4.2V4.2H-4.2Z", "M0-5.4L5 3.9H-5Z", "M0-5.8L5.2 0L0 5.8L-5.2 0Z",
    "M0 5.4L5-3.9H-5Z", "M-1.7-5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z",
    "M-4.8-2.6L-2.6-4.8L0-2.2L2.6-4.8L4.8-2.6L2.2 0L4.8 2.6L2.6 4.8L0 2.2L-2.6 4.8L-4.8 2.6L-2.2 0Z",
  ];
  const marker = (i) => MARKERS[(i + Math.floor(i / 7)) % 7];
  const state = { axis: data.axis, hidden: new Set(), at: -1 };
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
    const placed = (points) => points.filter((p) => p.x[state.axis] > 0).map((p) => ({ ...p, at: p.x[state.axis] }));
    const all = [
      ...data.ceilings.map((c) => ({ ...c, kind: "ceiling", name: "ceiling " + c.label })),
      ...data.baselines.map((b) => ({ label: b.label, kind: "baseline", name: "baseline " + b.label, points: [b] })),
      ...data.curves.map((c, i) => ({ ...c, kind: "curve", i, name: "curve " + i })),
    ];
    return all.map((s) => ({ ...s, points: placed(s.points) })).filter((s) => s.points.length && !state.hidden.has(s.kind === "curve" ? s.name : s.kind));
  }

  function frontier() {
    if (state.hidden.has("frontier")) return [];
    if (state.axis === data.axis) return data.frontier.filter(([x]) => x > 0);
    const points = data.curves.flatMap((c) => c.points).map((p) => [p.x[state.axis], p.y]).filter(([x]) => x > 0);
    points.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
    let best = -1;
    return points.filter(([, y]) => y > best && ((best = y), true));
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
    let y0 = Math.min(...points.map((p) => p.low ?? p.y)), y1 = Math.max(...points.map((p) => p.high ?? p.y));
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

    for (const s of drawn.filter((s) => s.kind === "curve" && s.points.length > 1 && s.points.every((p) => p.low !== null)))
      plot.append(svg("path", { d: path(s.points, (p) => p.high) + path([...s.points].reverse(), (p) => p.low).replace("M", "L") + "Z", fill: colour(s.i), opacity: 0.13 }));
    drawn.filter((s) => s.kind === "ceiling").forEach((s, i) => {
      const dash = ["7 4", "2 3", "9 3 2 3"][i % 3];
      plot.append(svg("path", { d: path(s.points, (p) => p.y), fill: "none", stroke: "var(--grey)", "stroke-width": 1.6, "stroke-dasharray": dash }));
      if (s.points.length === 1) plot.append(svg("path", { d: `M${X(s.points[0].at) - 7} ${Y(s.points[0].y)}h14`, stroke: "var(--grey)", "stroke-width": 2 }));
    });
    const edge = frontier();
    if (edge.length) {
      const steps = edge.map(([x, y], i) => (i ? `H${X(x).toFixed(1)}V${Y(y).toFixed(1)}` : `M${X(x).toFixed(1)} ${Y(y).toFixed(1)}`)).join("");
      plot.append(svg("path", { d: `${steps}H${width - right}`, fill: "none", stroke: "var(--ink)", "stroke-width": 1.1, opacity: 0.6 }));
    }
    for (const s of drawn.filter((s) => s.kind === "curve")) {
      plot.append(svg("path", { d: path(s.points, (p) => p.y), fill: "none", stroke: colour(s.i), "stroke-width": 2.3, "stroke-linejoin": "round" }));
      for (const p of s.points) {
        if (s.points.length === 1 && p.low !== null)
          plot.append(svg("line", { x1: X(p.at), x2: X(p.at), y1: Y(p.low), y2: Y(p.high), stroke: colour(s.i), "stroke-width": 3, opacity: 0.35 }));
        plot.append(svg("path", { d: marker(s.i), transform: `translate(${X(p.at).toFixed(1)} ${Y(p.y).toFixed(1)})`, fill: colour(s.i), stroke: "var(--paper)", "stroke-width": 1 }));
      }
    }
    // Names stand where they hide least: of lines, counted along them, of markers, and of other names.
    const crowd = drawn.filter((s) => s.kind !== "baseline").flatMap((s) => s.points.flatMap((p, i) => {
      const [x, y] = [X(p.at), Y(p.y)], q = s.points[i + 1];
      const along = q ? Array.from({ length: 24 }, (_, k) => [x + ((X(q.at) - x) * k) / 24, y + ((Y(q.y) - y) * k) / 24]) : [];
      return [...Array.from({ length: 12 }, () => [x, y]), ...along];
    }));
    for (const s of drawn.filter((s) => s.kind === "baseline"))
      for (const p of s.points) {
        const [x, y] = [X(p.at), Y(p.y)];
        plot.append(svg("circle", { cx: x, cy: y, r: 6.5, fill: "none", stroke: "var(--ink)", "stroke-width": 1.8 }));
        if (width < 560) continue; // no room for names: a tap tells them
        const name = safe(s.label).split("/").pop().slice(0, 40), long = 6.4 * name.length;
        const hides = ([dx, dy]) => {
          const [l, t] = [x + dx - 3, y + dy - 8], [r, b] = [l + long + 6, t + 16];
          const outside = l < left || r > width - right || t < top || b > height - bottom;
          return (outside ? 1e6 : 0) + crowd.filter(([cx, cy]) => cx > l && cx < r && cy > t && cy < b).length;
        };
        const offsets = [17, -17, 31, -31, 45, -45].flatMap((dy) => [-5, -long + 5, -long / 2].map((dx) => [dx, dy])).concat([[12, 0], [-long - 10, 0]]);
        const [dx, dy] = offsets.reduce((best, o) => (hides(o) < hides(best) ? o : best));
        for (let k = 0; k < 200; k++) crowd.push([x + dx + (long * (k % 40)) / 39, y + dy + [-8, -4, 0, 4, 8][k % 5]]);
        plot.append(svg("text", { class: "name", x: x + dx, y: y + dy + 4 }, name));
      }
    spots = drawn.flatMap((s) => s.points.map((p) => ({ s, p, x: X(p.at), y: Y(p.y), width, height })));
    spots.sort((a, b) => a.x - b.x || a.y - b.y);
  }

  const KINDS = { ceiling: "pass@n ceiling", baseline: "single call" };
  function lines(spot) {
    const { s, p } = spot;
    const found = [];
    const budget = [KINDS[s.kind], p.b, (s.llms || []).join(" > ")].filter(Boolean).join(", ");
    if (budget) found.push(budget);
    const band = p.low === null || p.low === undefined ? "" : ` (${data.band}: ${percent(p.low)} to ${percent(p.high)})`;
    found.push(`accuracy ${percent(p.y)} %${band}`);
    for (const axis of data.axes) if (p.x[axis.key] !== null && p.x[axis.key] !== undefined) found.push(`${plain(p.x[axis.key])} ${axis.unit}`);
    if (p.kind) found.push(p.kind);
    return found;
  }

  function showTip(spot) {
    state.at = spots.indexOf(spot);
    plot.querySelector(".ring")?.remove();
    plot.append(svg("circle", { class: "ring", cx: spot.x, cy: spot.y, r: 9, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }));
    const told = lines(spot);
    tip.replaceChildren(el("b", null, spot.s.label), ...told.map((line) => el("div", null, line)));
    tip.hidden = false;
    const scale = plot.clientWidth / spot.width;
    const x = spot.x * scale, y = spot.y * scale;
    tip.style.left = `${Math.max(0, Math.min(x + 14, plot.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + tip.offsetHeight + 22 > plot.clientHeight ? Math.max(0, y - tip.offsetHeight - 14) : y + 16}px`;
    return told;
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
    const told = showTip(spots[at]);
    said.textContent = safe([spots[at].s.label, ...told].join(", "));
  });

  function swatch(s) {
    const made = svg("svg", { width: 30, height: 14, viewBox: "0 0 30 14", "aria-hidden": "true" });
    if (s.kind === "curve") {
      made.append(svg("path", { d: "M1 7H29", stroke: colour(s.i), "stroke-width": 2.3 }));
      made.append(svg("path", { d: marker(s.i), transform: "translate(15 7)", fill: colour(s.i) }));
    } else if (s.kind === "baseline") made.append(svg("circle", { cx: 15, cy: 7, r: 5, fill: "none", stroke: "var(--ink)", "stroke-width": 1.8 }));
    else if (s.kind === "ceiling") made.append(svg("path", { d: "M1 7H29", stroke: "var(--grey)", "stroke-width": 1.6, "stroke-dasharray": ["7 4", "2 3", "9 3 2 3"][(s.i || 0) % 3] }));
    else if (s.kind === "frontier") made.append(svg("path", { d: "M1 12H10V7H20V2H29", fill: "none", stroke: "var(--ink)", opacity: 0.6 }));
    else made.append(svg("rect", { x: 3, y: 2, width: 24, height: 10, fill: "var(--grey)", opacity: 0.3 }));
    return made;
  }

  function toggles() {
    const entries = data.curves.map((c, i) => ({ kind: "curve", i, key: "curve " + i, label: c.label }));
    if (data.baselines.length) entries.push({ kind: "baseline", key: "baseline", label: "single call" });
    data.ceilings.forEach((c, i) => entries.push({ kind: "ceiling", i, key: "ceiling", label: `pass@n ceiling, ${c.label}` }));
    if (data.frontier.length) entries.push({ kind: "frontier", key: "frontier", label: "Pareto frontier" });
    const list = el("ul", { class: "legend", "aria-label": "Lines of the figure; press one to hide it" });
    const press = (entry) => {
      state.hidden.has(entry.key) ? state.hidden.delete(entry.key) : state.hidden.add(entry.key);
      for (const button of list.querySelectorAll("button")) button.setAttribute("aria-pressed", String(!state.hidden.has(button.dataset.key)));
      drawPlot();
    };
    for (const entry of entries)
      list.append(el("li", null, el("button", { type: "button", "aria-pressed": "true", "data-key": entry.key, onclick: () => press(entry) }, swatch(entry), entry.label)));
    if (data.band) list.append(el("li", null, el("span", { class: "key" }, swatch({}), data.band)));
    return list;
  }

  function choice(name, options, chosen, act) {
    const made = el("span", { class: "choice", role: "group", "aria-label": name });
    for (const [key, label] of options)
      made.append(el("button", { type: "button", "data-key": key, "aria-pressed": String(key === chosen), onclick: () => {
        for (const button of made.children) button.setAttribute("aria-pressed", String(button.dataset.key === key));
        act(key);
      } }, label));
    return made;
  }

  if (data.curves.length) {
    const axes = choice("Cost axis", data.axes.map((a) => [a.key, a.short]), state.axis, (key) => { state.axis = key; drawPlot(); });
    section("curve", "Curve", "Cost and accuracy",
      el("div", { class: "controls" }, el("span", null, "Cost in"), axes),
      el("figure", null, el("div", null, plot), tip, toggles(), said));
    drawPlot();
    new ResizeObserver(() => { if (Math.abs(plot.parentNode.clientWidth - Number(plot.getAttribute("viewBox").split(" ")[2])) > 1) drawPlot(); }).observe(plot.parentNode);
  }

  if (data.pictures.length)
    section("surface", "Width and depth", "Width and depth", ...data.pictures.map(({ src, alt, note }) =>
      el("figure", null, el("img", { class: "picture", src, alt }), note ? el("figcaption", { class: "note" }, note) : null)));

  // -- tables ---------------------------------------------------------------------------------------------------------

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

  function table(spec) {
    const body = el("tbody");
    const reach = spec.columns.map((_, i) => Math.max(1e-12, ...spec.rows.filter((r) => r[i] && r[i].i).flatMap((r) => r[i].i.map(Math.abs))));
    const cell = (value, i) => value && value.i
      ? el("td", { class: "number" }, interval(value, reach[i]))
      : el("td", { class: spec.columns[i].number ? "number" : String(shown(value)).length > 24 ? "words long" : "words" }, shown(value) ?? "-");
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
      } }, column.name));
      return head;
    });
    // Pairs grow with the square of the methods: a long table of them starts with those of one method, and all can be had.
    let [rows, pick, order] = [spec.rows, null, null];
    const again = () => put(order ? [...rows].sort(order) : rows);
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
    const frame = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": spec.title },
      el("table", null, el("thead", null, el("tr", null, ...heads)), body));
    return [pick, frame];
  }

  for (const spec of data.tables)
    section(spec.id, spec.link, spec.title, spec.intro ? el("p", { class: "lede" }, spec.intro) : null,
      spec.rows.length ? table(spec) : null, ...(spec.notes || []).map((note) => el("p", { class: "note" }, note)));

  // -- questions ------------------------------------------------------------------------------------------------------

  function explorer(book) {
    const { traces, tree } = depth({ el, svg, plain });
    const view = { filter: "all", budget: "last", search: "", page: 0, open: null };
    const last = (method) => (view.budget === "last" ? method.points.length - 1 : 0);
    const followed = book.methods.map((method, i) => ({ ...method, i })).filter((method) => method.points.length);
    const decided = (q, method, point) => q.m[method.i][point ?? last(method)];
    const right = (q, d) => q.k >= 0 && d[0] === q.k;
    const word = (q, code) => (code < 0 ? "no answer" : code < q.a.length ? q.a[code] : "an answer no CoT gave");
    const tone = (q, code) => (code < 0 ? "none" : q.k >= 0 && code === q.k ? "right" : "wrong");
    const sign = { right: "✓", wrong: "✗", none: "–" };
    const FILTERS = {
      all: () => true,
      disagree: (q) => new Set(followed.map((m) => decided(q, m)[0])).size > 1,
      mixed: (q) => new Set(followed.map((m) => right(q, decided(q, m)))).size > 1,
      wrong: (q) => followed.every((m) => !right(q, decided(q, m))),
      right: (q) => followed.every((m) => right(q, decided(q, m))),
    };
    const list = el("ol", { class: "questions" });
    const count = el("span", { role: "status" });
    const where = el("span");
    const back = el("button", { type: "button", onclick: () => turn(-1) }, "← Previous");
    const next = el("button", { type: "button", onclick: () => turn(1) }, "Next →");
    const search = el("input", { class: "field", type: "search", placeholder: "Search questions, golds and answers", "aria-label": "Search questions, golds and answers", oninput: () => { view.search = search.value; view.page = 0; put(); } });
    const haystacks = new Map();
    const haystack = (q) => {
      if (!haystacks.has(q)) haystacks.set(q, [q.i, q.q, q.g ?? "", ...q.a].join("\n").toLowerCase());
      return haystacks.get(q);
    };
    function turn(by) { view.page += by; put(); list.querySelector("button")?.focus(); }

    function put() {
      const wanted = view.search.trim().toLowerCase();
      const found = book.questions.filter((q) => FILTERS[view.filter](q) && (!wanted || haystack(q).includes(wanted)));
      const pages = Math.max(1, Math.ceil(found.length / PAGE));
      view.page = Math.min(Math.max(view.page, 0), pages - 1);
      list.replaceChildren(...found.slice(view.page * PAGE, (view.page + 1) * PAGE).map(item));
      count.textContent = `${found.length.toLocaleString("en")} of ${book.questions.length.toLocaleString("en")} questions`;
      where.textContent = `page ${view.page + 1} of ${pages}`;
      back.disabled = view.page === 0;
      next.disabled = view.page === pages - 1;
    }

    function item(q) {
      const marks = followed.map((m) => {
        const d = decided(q, m), t = tone(q, d[0]);
        return el("span", { class: "mark " + t, title: `${m.label} ${m.points[last(m)]}: ${word(q, d[0])}` }, sign[t]);
      });
      const tally = `${followed.filter((m) => right(q, decided(q, m))).length} of ${followed.length} methods right`;
      const row = el("li");
      const button = el("button", { type: "button", "aria-expanded": "false", onclick: () => {
        const opened = row.querySelector(".open");
        button.setAttribute("aria-expanded", String(!opened));
        opened ? opened.remove() : row.append(detail(q));
      } }, el("span", null, el("span", { class: "id" }, q.i), el("span", { class: "what", dir: "auto" }, q.q)),
        followed.length ? el("span", { class: "marks", role: "img", "aria-label": tally }, ...marks) : null);
      row.append(button);
      return row;
    }

    function detail(q) {
      const box = el("div", { class: "open" });
      const chosen = { method: followed[0], point: followed.length ? last(followed[0]) : 0 };
      const pools = el("div");
      const chip = (m, p) => {
        const d = q.m[m.i][p], t = tone(q, d[0]);
        return el("button", { type: "button", class: "chip " + t, "aria-pressed": String(m === chosen.method && p === chosen.point), onclick: (event) => {
          chosen.method = m;
          chosen.point = p;
          for (const other of box.querySelectorAll(".chip")) other.setAttribute("aria-pressed", String(other === event.currentTarget));
          putPools();
        } }, `${sign[t]} ${m.points[p] ? m.points[p] + ": " : ""}${word(q, d[0])} (${d.slice(1).join(" + ")})`);
      };
      function putPools() {
        pools.replaceChildren(...book.llms.map((name, l) => pool(q, name, l, chosen)).flat());
      }
      box.append(el("div", { class: "text", dir: "auto" }, q.q));
      if (q.c.length) box.append(el("ul", { class: "choices" }, ...q.c.map(([label, text]) => el("li", null, el("b", null, label), label === text ? "" : ` ${text}`))));
      box.append(el("p", null, "Gold: ", q.g === null ? el("i", null, "none") : el("b", { dir: "auto" }, q.g)));
      if (followed.length) {
        const rows = followed.flatMap((m) => [el("div", { class: "label" }, m.label), el("div", { class: "chips" }, ...m.points.map((_, p) => chip(m, p)))]);
        box.append(el("h3", null, `What each method answered (${book.trees.every(Boolean) ? "steps" : "CoTs"} drawn)`), el("div", { class: "methods" }, ...rows));
      }
      putPools();
      box.append(pools);
      return box;
    }

    function pool(q, name, l, chosen) {
      const grown = chosen.method && q.r ? q.r[chosen.method.i][chosen.point][l] : null;
      const mark = (q, code) => sign[tone(q, code)];
      const which = chosen.method ? ` by ${chosen.method.label}${chosen.method.points[chosen.point] ? ", " + chosen.method.points[chosen.point] : ""}` : "";
      if (book.trees[l]) {
        const answer = chosen.method ? decided(q, chosen.method, chosen.point)[0] : -1;
        const own = q.t ? tree(q, q.t[l], book.trees[l], grown, answer, word, tone, mark) : [el("p", { class: "note" }, "This question's tree is not in this page; the recording has it.")];
        return [el("h3", null, name, " ", el("span", { class: "badge" }, grown ? `searched${which}` : "tree of steps")), ...own];
      }
      const [codes, tokens, texts, reached] = q.d[l];
      const at = chosen.method ? chosen.method.llms[chosen.point].indexOf(l) : -1;
      const drawn = at < 0 ? 0 : q.m[chosen.method.i][chosen.point][1 + at];
      const holder = el("div", { "aria-live": "polite" });
      const strip = el("div", { class: "strip" });
      codes.forEach((code, i) => {
        if (i === drawn && i > 0) strip.append(el("span", { class: "stop" }, `stopped after ${drawn}`));
        if (i === reached && i > drawn) strip.append(el("span", { class: "stop" }, "beyond the smallest pool"));
        const cell = el("button", { type: "button", class: `cell ${tone(q, code)}${i < drawn ? "" : " unread"}`, "aria-pressed": "false",
          "aria-label": `CoT ${i + 1} of ${name}: ${word(q, code)}`, title: `${word(q, code)}, ${tokens[i]} tokens`, onclick: () => {
            const again = cell.getAttribute("aria-pressed") === "true";
            for (const other of strip.querySelectorAll(".cell")) other.setAttribute("aria-pressed", "false");
            holder.replaceChildren();
            if (again) return;
            cell.setAttribute("aria-pressed", "true");
            const text = texts[i];
            holder.append(el("div", { class: "cot" }, el("div", { class: "id" }, `CoT ${i + 1} of ${name}, ${tokens[i]} tokens, answer: ${word(q, code)}`),
              text === undefined ? el("p", { class: "note" }, "This CoT's text is not in this page; the recording has it.")
                : text === null ? el("p", { class: "note" }, "No text was recorded.") : el("div", { class: "text", dir: "auto" }, text)));
          } }, code < 0 ? "–" : word(q, code));
        strip.append(cell);
      });
      const say = at < 0 ? "not asked" : `${drawn} of ${codes.length} drawn`;
      return [el("h3", null, name, " ", el("span", { class: "badge" }, say + which)), strip, holder,
        ...(q.t?.[l] ? traces(q, q.t[l], q.d[l], chosen.method ? drawn : codes.length, grown, word, mark) : [])];
    }

    const filters = choice("Questions shown", [["all", "All"], ["disagree", "Methods disagree"], ["mixed", "Some right, some wrong"], ["wrong", "All wrong"], ["right", "All right"]], "all", (name) => { view.filter = name; view.page = 0; put(); });
    const budgets = choice("Budget of each method", [["last", "largest"], ["first", "smallest"]], "last", (name) => { view.budget = name; put(); });
    section("questions", "Questions", "Questions", el("p", { class: "lede" }, book.lede), ...book.notes.map((note) => el("p", { class: "note" }, note)),
      el("div", { class: "controls" }, filters), el("div", { class: "controls" }, el("span", null, "Judged at each method's"), budgets, el("span", null, "budget"), search),
      el("p", { class: "note" }, count), list, el("div", { class: "pager" }, back, where, next)).classList.add("long");
    put();
  }
  if (data.explorer) explorer(data.explorer);

  // -- provenance and navigation --------------------------------------------------------------------------------------

  section("provenance", "Provenance", "Where the numbers come from",
    el("dl", { class: "facts" }, ...data.facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])),
    el("h3", null, "Compute them again"), ...data.verify.map((line) => (line.startsWith("$ ") ? el("pre", null, line.slice(2)) : el("p", null, line))));

  const links = [...main.querySelectorAll("section")].map((s) => el("li", null, el("a", { href: "#" + s.id }, s.dataset.link)));
  document.querySelector("nav ul").append(...links);
  document.documentElement.dataset.ready = "yes";
})();
