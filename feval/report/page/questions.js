function explorer(book) {
  const { traces, tree } = depth({ el, svg, plain });
  const view = { filter: "all", budget: "last", search: "" };
  const last = (method) => (view.budget === "last" ? method.points.length - 1 : 0);
  const followed = book.methods.map((method, i) => ({ ...method, i })).filter((method) => method.points.length);
  const decided = (q, method, point) => q.m[method.i][point ?? last(method)];
  const right = (q, d) => q.k >= 0 && (q.p ? q.p[d[0]] >= 0.5 : d[0] === q.k);
  const FILTERS = {
    all: () => true,
    disagree: (q) => new Set(followed.map((m) => decided(q, m)[0])).size > 1,
    mixed: (q) => new Set(followed.map((m) => right(q, decided(q, m)))).size > 1,
    wrong: (q) => followed.every((m) => !right(q, decided(q, m))),
    right: (q) => followed.every((m) => right(q, decided(q, m))),
  };
  const rem = followed.length > 30 ? 0.95 : 1.25; // width of a mark
  const list = paged(item, book.questions.length, "questions", followed.length ? heads(followed.map((m) => m.label), rem) : null);
  const search = el("input", { class: "field", type: "search", placeholder: "Search questions, golds and answers", "aria-label": "Search questions, golds and answers", oninput: () => { view.search = search.value; put(); } });
  const haystacks = new Map();
  const haystack = (q) => {
    if (!haystacks.has(q)) haystacks.set(q, [q.i, q.q, q.g ?? "", ...q.a].join("\n").toLowerCase());
    return haystacks.get(q);
  };
  function put() {
    const wanted = view.search.trim().toLowerCase();
    list.show(book.questions.filter((q) => FILTERS[view.filter](q) && (!wanted || haystack(q).includes(wanted))));
  }

  function item(q) {
    const marks = followed.map((m) => {
      const d = decided(q, m), t = tone(q, d[0]);
      return el("span", { class: "mark " + t, title: `${m.label} ${m.points[last(m)]}: ${word(q, d[0])}` }, sign[t]);
    });
    const tally = `${followed.filter((m) => right(q, decided(q, m))).length} of ${followed.length} methods right`;
    return entry(q, followed.length ? el("span", { class: "marks", style: `--mark: ${rem}rem`, role: "img", "aria-label": tally }, ...marks) : null, () => detail(q));
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
    box.append(...asked(q));
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
      const own = q.t ? tree(q, q.t[l], book.trees[l], grown ?? (chosen.method ? [] : null), answer, word, tone, mark) : [el("p", { class: "note" }, "This question's tree is not in this page; the recording has it.")];
      return [el("h3", null, name, " ", el("span", { class: "badge" }, chosen.method ? `${grown ? (book.turns[l] ? "followed" : "searched") : "not asked"}${which}` : book.turns[l] ? "CoTs and turns" : "tree of steps")), ...own];
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
              : text === null ? el("p", { class: "note" }, "No text was recorded.") : el("div", { class: "text", dir: "auto" }, ...spoken(text))));
        } }, code < 0 ? "–" : word(q, code));
      strip.append(cell);
    });
    const say = at < 0 ? "not asked" : `${drawn} of ${codes.length} drawn`;
    return [el("h3", null, name, " ", el("span", { class: "badge" }, say + which)), strip, holder,
      ...(q.t?.[l] ? traces(q, q.t[l], q.d[l], chosen.method ? drawn : codes.length, grown, word, mark) : [])];
  }

  const filters = choice("Questions shown", [["all", "All"], ["disagree", "Methods disagree"], ["mixed", "Some right, some wrong"], ["wrong", "All wrong"], ["right", "All right"]], "all", (name) => { view.filter = name; put(); });
  const budgets = choice("Budget of each method", [["last", "largest"], ["first", "smallest"]], "last", (name) => { view.budget = name; put(); });
  section("questions", "Questions", "Questions", el("p", { class: "lede" }, book.lede), ...book.notes.map((note) => el("p", { class: "note" }, note)),
    el("div", { class: "controls" }, filters), el("div", { class: "controls" }, el("span", null, "Judged at each method's"), budgets, el("span", null, "budget"), search),
    keys([...TONES, ["unread", "7", "recorded, and not drawn"]]), ...list.parts).classList.add("long");
  put();
}
