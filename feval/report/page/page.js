if (data.curves.length) {
  const axes = choice("Cost axis", data.axes.map((a) => [a.key, a.short]), state.axis, (key) => { state.axis = key; drawPlot(); });
  section("curve", "Curve", "Cost and accuracy",
    el("div", { class: "controls" }, el("span", null, "Cost in"), axes),
    el("figure", null, el("div", null, plot), tip, toggles(), said),
    el("div", { class: "under" }, action("Picture (PNG)", savePicture), action("Points (CSV)", savePoints)));
  drawPlot();
  new ResizeObserver(() => { if (Math.abs(plot.parentNode.clientWidth - Number(plot.getAttribute("viewBox").split(" ")[2])) > 1) drawPlot(); }).observe(plot.parentNode);
}

if (data.pictures.length)
  section("surface", "Width and depth", "Width and depth", ...data.pictures.map(({ src, alt, note }) =>
    el("figure", null, el("img", { class: "picture", src, alt }), note ? el("figcaption", { class: "note" }, note) : null)));

for (const spec of data.tables)
  section(spec.id, spec.link, spec.title, spec.intro ? el("p", { class: "lede" }, spec.intro) : null,
    spec.rows.length ? table(spec) : null, ...(spec.notes || []).map((note) => el("p", { class: "note" }, note)));

if (data.explorer) explorer(data.explorer);

// -- provenance and navigation --------------------------------------------------------------------------------------

section("provenance", "Provenance", "Where the numbers come from",
  el("dl", { class: "facts" }, ...data.facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])),
  el("h3", null, "Compute them again"), ...data.verify.map((line) => (line.startsWith("$ ") ? el("pre", null, line.slice(2)) : el("p", null, line))));
navigation();
