for (const label of narrow ? document.querySelectorAll(".result b") : [])
  label.textContent = names.reduce((text, name) => text.replaceAll(name, brief([name])), label.textContent);
if (data.curves.length) {
  const axes = choice("Cost axis", data.axes.map((a) => [a.key, a.short]), state.axis, (key) => { state.axis = key; drawPlot(); });
  section("curve", "Curve", "Cost and accuracy",
    el("div", { class: "controls" }, el("span", null, "Cost in"), axes),
    el("figure", null, el("div", null, plot), tip, toggles(), said),
    el("div", { class: "under" }, action("Picture (PNG)", savePicture), action("Points (CSV)", savePoints)));
  drawPlot();
  new ResizeObserver(() => { if (Math.abs(plot.parentNode.clientWidth - Number(plot.getAttribute("viewBox").split(" ")[2])) > 1) drawPlot(); }).observe(plot.parentNode);
}

const OPEN = ["differences", "best"]; // of a comparison; its other tables are folded
function put(spec) {
  const made = section(spec.id, spec.link, spec.title, spec.intro ? el("p", { class: "lede" }, spec.intro) : null,
    spec.rows.length ? table(spec) : null, ...(spec.notes || []).map((note) => el("p", { class: "note" }, note)));
  if (!data.curves.length || spec.id === "missing" || OPEN.includes(spec.id)) return;
  const [head, ...rest] = made.childNodes;
  made.append(el("details", null, el("summary", null, head), ...rest));
}
const first = data.curves.length ? OPEN.flatMap((id) => data.tables.filter((spec) => spec.id === id)) : [];
first.forEach(put);

if (data.pictures.length)
  section("surface", "Width and depth", "Accuracy over width and depth", ...data.pictures.map(({ src, alt, note }) =>
    el("figure", null, el("img", { class: "picture", src, alt }), note ? el("figcaption", { class: "note" }, note) : null)));

data.tables.filter((spec) => !first.includes(spec)).forEach(put);

if (data.explorer) explorer(data.explorer);

// -- provenance and navigation --------------------------------------------------------------------------------------

section("provenance", "Provenance", "Where the numbers come from",
  el("dl", { class: "facts" }, ...data.facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])),
  el("h3", null, "Compute them again"), ...data.verify.map((line) => (line.startsWith("$ ") ? el("pre", null, line.slice(2)) : el("p", null, line))));
navigation();
