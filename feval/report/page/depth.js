// Traces with their probes and trees of steps, of one opened question; `el` and `svg` make elements whose text is only text.
const depth = ({ el, svg, plain }) => {
  const COLOURS = [0, 1, 3, 4, 5].map((i) => `var(--c${i})`);

  // The gold's answer is green, the five most frequent others have colours of their own.
  function palette(q, codes) {
    const count = new Map();
    for (const code of codes) if (code >= 0 && code !== q.k) count.set(code, (count.get(code) ?? 0) + 1);
    const first = [...count.keys()].sort((a, b) => count.get(b) - count.get(a)).slice(0, COLOURS.length);
    const colour = (code) => (code < 0 ? "var(--strong)" : code === q.k ? "var(--c2)" : COLOURS[first.indexOf(code)] ?? "var(--grey)");
    return { colour, first, others: count.size > first.length };
  }

  // Per trace its answers over its tokens; what a method left of it is pale.
  function traces(q, own, [codes, tokens], drawn, reached, word, sign, recorded = false) {
    const { colour, first, others } = palette(q, own.flatMap((answers, i) => [...answers.map(([, code]) => code), codes[i]]));
    const far = Math.max(1, ...own.map((answers, i) => Math.max(tokens[i], answers.at(-1)?.[0] ?? 0)));
    const rows = own.map((answers, i) => {
      const until = i >= drawn ? 0 : Math.min(reached?.[i] ?? tokens[i], far), cut = i < drawn && until < tokens[i];
      const latest = answers.filter(([offset]) => offset <= until).at(-1)?.[1] ?? -1;
      const [last, length] = cut ? [latest, `${plain(until)} of ${plain(tokens[i])}`] : [codes[i], i < drawn ? plain(tokens[i]) : "not drawn"];
      const pieces = [[0, -2], ...answers].flatMap(([offset, code], k) => {
        const next = answers[k]?.[0] ?? Math.max(tokens[i], offset);
        const title = code === -2 ? "not probed or not shown" : `from ${plain(offset)} tokens: ${word(q, code)}`;
        const piece = (from, to, opacity) => to > from
          ? svg("rect", { x: from, y: 0, width: to - from, height: 10, fill: code === -2 ? "var(--line)" : colour(code), opacity }, svg("title", null, title)) : null;
        return [piece(offset, Math.min(next, until), 1), piece(Math.max(offset, until), next, 0.22)];
      });
      const edge = cut ? svg("line", { x1: until, x2: until, y1: 0, y2: 10, stroke: "var(--ink)", "stroke-width": 2.5, "vector-effect": "non-scaling-stroke" }) : null;
      const told = `${sign(q, last)} ${word(q, last)}`;
      return [el("span", { class: "note" }, String(recorded ? i : i + 1)),
        svg("svg", { viewBox: `0 0 ${far} 10`, preserveAspectRatio: "none", role: "img", "aria-label": `trace ${recorded ? i : i + 1}, tokens: ${length}, ${told}` }, ...pieces, edge),
        el("span", { class: i < drawn ? "told" : "told unread", title: word(q, last) }, told, el("span", { class: "note" }, ` ${length}`))];
    });
    const key = (fill, ...label) => el("li", null, el("span", { class: "key" }, svg("svg", { width: 14, height: 10 }, svg("rect", { width: 14, height: 10, fill })), ...label));
    const note = recorded ? "At the right: the final answer, and all tokens."
      : "A bar marks where the method stopped one. At the right: the last answer, and tokens generated of those recorded.";
    return [el("p", { class: "note" }, `Traces ${recorded ? "as recorded" : "in draw order"}, from 0 to ${plain(far)} tokens. Colours are their answers when probed. ${note}`),
      el("div", { class: "traces" }, ...rows.flat()),
      el("ul", { class: "legend" }, q.k < 0 ? null : key("var(--c2)", `✓ ${word(q, q.k)}`), ...first.map((code) => key(colour(code), word(q, code))),
        others ? key("var(--grey)", "other answers") : null, key("var(--strong)", "no answer"), key("var(--line)", "before the first probe"))];
  }

  // Steps, children indented behind their parent; marked are those that a method took, and paths that end in its answer. What
  // comes after a step that it did not take is left out.
  function tree(q, steps, scorers, taken, answer, word, tone, sign) {
    const children = new Map(), took = new Set(taken ?? []), path = new Set();
    steps.forEach(([parent], i) => children.set(parent, [...(children.get(parent) ?? []), i]));
    for (const i of took) if (answer >= 0 && steps[i][2] === answer) for (let j = i; j >= 0; j = steps[j][0]) path.add(j);
    const rows = [], waiting = [...(children.get(-1) ?? [])].reverse().map((i) => [i, 0]);
    while (waiting.length) {
      const [i, level] = waiting.pop(), [, tokens, code, scores, text] = steps[i];
      const [mark, state] = path.has(i) ? ["●", "on a path to its answer"] : took.has(i) ? ["○", "taken"] : ["·", taken ? "not taken" : "recorded"];
      const about = [...scores.map((score, k) => (score === null ? null : `${scorers[k]} ${score}`)), `${plain(tokens)} tokens`].filter(Boolean).join(", ");
      const hidden = taken && !took.has(i) && children.has(i);
      rows.push(el("li", { class: path.has(i) ? "path" : taken && !took.has(i) ? "unread" : null, style: `margin-left: ${Math.min(level, 12) * 1.1}rem` },
        el("span", { role: "img", title: state, "aria-label": state }, mark), " ", el("span", { dir: "auto" }, ...spoken(text ?? "no text was recorded")), " ", el("span", { class: "note" }, about),
        code === -2 ? null : el("span", { class: "mark-answer " + tone(q, code) }, `${sign(q, code)} ${word(q, code)}`),
        hidden ? el("span", { class: "note", title: "steps after it are not shown" }, " …") : null));
      if (!hidden) waiting.push(...[...(children.get(i) ?? [])].reverse().map((child) => [child, level + 1]));
    }
    return [el("p", { class: "note" }, taken ? "○ step that the method took, ● on a path that ends in its answer, · not taken." : "All that was recorded."), el("ol", { class: "tree" }, ...rows)];
  }
  return { traces, tree };
};
