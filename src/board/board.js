// Shows many runs: a table that the server keeps up to date, and the curves of those that are chosen, laid over each other.
const runs = new Map();  // by name: {name, state, activity, step, total_steps, loss, best, tokens_per_second, remaining_seconds, ...}
const remembered = JSON.parse(sessionStorage.getItem("board") || "{}");
const shown = { key: "state", descending: false, filter: "", chosen: [], what: "mean_loss", axis: "steps", ...remembered };
const remember = () => sessionStorage.setItem("board", JSON.stringify(shown));

// ---- the table ----

const kOrder = ["running", "starting", "killed", "stopped", "done", ""];
const kWords = { done: "finished", "": "not known" };
const stateWords = (run) => run.state === "running" ? run.activity || "running" : kWords[run.state] ?? run.state;
const valueOf = (run, key) => key === "state" ? kOrder.indexOf(run.state) : key === "name" ? run.name : run[key];

// Those without a value come last, whichever way; equals by name.
const inOrder = (a, b) => {
  const x = valueOf(a, shown.key) ?? null, y = valueOf(b, shown.key) ?? null;
  const byName = a.name.localeCompare(b.name, "en", { numeric: true });
  if (x === null || y === null) return x === y ? byName : x === null ? 1 : -1;
  const order = shown.key === "name" ? byName : x - y;
  return (shown.descending ? -order : order) || byName;
};

const isWanted = (run) => {
  const text = (run.name + " " + stateWords(run) + " " + run.state).toLowerCase();
  return shown.filter.toLowerCase().split(/\s+/).every((word) => text.includes(word));
};

const rowOf = new Map();  // of the table, by the run's name
const fill = (run) => {
  let row = rowOf.get(run.name);
  if (!row) {
    row = make("tr");
    for (let i = 0; i < 8; ++i) row.append(make("td"));
    const box = make("input"), link = make("a", run.name);
    box.type = "checkbox";
    box.checked = shown.chosen.includes(run.name);
    box.setAttribute("aria-label", "Draw the curve of " + run.name);
    box.addEventListener("change", () => choose(run.name, box.checked));
    link.href = withKey("run?name=" + encodeURIComponent(run.name));
    link.title = run.name;
    row.cells[0].append(box);
    row.cells[1].append(link);
    rowOf.set(run.name, row);
  }
  const say = (cell, text, note) => row.cells[cell].replaceChildren(text, ...(note ? [" ", make("small", note)] : []));
  say(2, stateWords(run), run.silent_seconds > 0 ? "silent for " + duration(run.silent_seconds) : "");
  row.cells[2].className = run.state === "killed" || run.silent_seconds > 0 ? "failure" : "";
  say(3, run.step === null ? "–" : whole(run.step), run.total_steps > 0 ? "of " + whole(run.total_steps) : "");
  say(4, exact(run.loss));
  say(5, exact(run.best));
  say(6, short(run.tokens_per_second));
  say(7, run.remaining_seconds > 0 ? duration(run.remaining_seconds) : "–");
};

const showTable = () => {
  const rows = [...runs.values()].filter(isWanted).sort(inOrder).map((run) => rowOf.get(run.name));
  const body = element("runs").tBodies[0];
  const isSame = rows.length === body.rows.length && rows.every((row, i) => row === body.rows[i]);
  if (!isSame) body.replaceChildren(...rows);  // which takes the focus from what is in it
  for (const button of element("runs").querySelectorAll("th button")) {
    const heading = button.parentElement;
    if (button.dataset.key !== shown.key) heading.removeAttribute("aria-sort");
    else heading.setAttribute("aria-sort", shown.descending ? "descending" : "ascending");
  }
  const counts = kOrder.map((state) => [state, [...runs.values()].filter((run) => run.state === state).length]).filter(([, count]) => count > 0);
  element("status").textContent = runs.size === 0 ? "There are no runs yet. The first one appears here by itself."
    : runs.size + (runs.size === 1 ? " run: " : " runs: ") + counts.map(([state, count]) => count + " " + (kWords[state] ?? state)).join(", ") + ".";
  document.body.dataset.runs = rows.length;
};

for (const button of element("runs").querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    shown.descending = shown.key === button.dataset.key && !shown.descending;
    shown.key = button.dataset.key;
    remember();
    showTable();
  });
}
element("filter").value = shown.filter;
element("filter").addEventListener("input", () => {
  shown.filter = element("filter").value;
  remember();
  showTable();
});

// ---- the curves ----

const kMostCurves = 12;
const known = new Map();  // by name: {step: of the run when it was asked for, curves}
let graph = null;

const hues = [216, 22, 140, 280, 340, 180, 50, 250, 100, 310, 0, 200];
const colourOf = (i) => "hsl(" + hues[i % hues.length] + (isDark() ? " 85% 70%)" : " 75% 42%)");

// Only what compares is laid over each other: losses of the same text in the same tokens, bits per byte of the same text.
const comparesWith = (first, other) => first === other
  || (first.text !== undefined && first.text === other.text && (shown.what === "bits_per_byte" || first.tokens === other.tokens));

const sayLeftOut = (names, first) => {
  const why = shown.what === "bits_per_byte" ? "another text than " + first : "another text than " + first + ", or in other tokens";
  element("left-out").hidden = names.length === 0;
  element("left-out").textContent = names.length === 0 ? "" : "Not drawn: " + names.join(", ") + (names.length === 1 ? " reads " : " read ") + why + ".";
};

const curveShown = (curves) => {
  const curve = curves[shown.what];
  return shown.what === "mean_loss" && curve.steps.length > 50 ? smoothed(curve, 0.9) : curve;
};

const drawCurves = () => {
  const figure = element("curves").querySelector("figure");
  const ready = shown.chosen.filter((name) => known.has(name) && known.get(name).curves[shown.what].steps.length > 0);
  const names = ready.filter((name) => comparesWith(known.get(ready[0]).curves, known.get(name).curves));
  sayLeftOut(ready.filter((name) => !names.includes(name)), ready[0]);
  const longest = Math.max(0, ...names.map((name) => known.get(name).curves.seconds.values.at(-1) || 0));
  const axis = axisKinds[shown.axis](longest), unit = timeUnitOf(longest)[1];
  const rows = new Map();
  names.forEach((name, column) => {
    const { curves } = known.get(name);
    const grown = shown.axis === "tokens" ? grownTo(curves.tokens) : grownTo(curves.seconds);
    const place = (step) => shown.axis === "steps" ? step : shown.axis === "tokens" ? grown(step) : grown(step) / unit;
    const curve = curveShown(curves);
    curve.steps.forEach((step, i) => {
      const x = place(step), value = curve.values[i];
      if (!rows.has(x)) rows.set(x, [x, ...names.map(() => null)]);
      rows.get(x)[column + 1] = value === null ? NaN : value;
    });
  });
  const file = [...rows.values()].sort((a, b) => a[0] - b[0]);
  figure.dataset.unit = shown.what === "bits_per_byte" ? "bits per byte" : "nats per token";
  figure.querySelector("h2").textContent = element("curves").querySelector("input[value=" + shown.what + "]").parentElement.textContent.trim()
    + (names.some((name) => curveShown(known.get(name).curves) !== known.get(name).curves[shown.what]) ? ", smoothed" : "");
  figure.hidden = file.length === 0;
  document.body.dataset.curves = names.length;
  if (file.length === 0) return;
  const chart = { labels: [axis.title, ...names], colors: names.map((name) => colourOf(shown.chosen.indexOf(name))) };
  const range = graph && graph.isZoomed("x") && graph.axisShown === shown.axis ? graph.xAxisRange() : null;
  if (graph) graph.destroy();
  graph = new Dygraph(figure.querySelector(".chart"), file, { ...chartOptions(figure, axis, short), ...chart, drawPoints: file.length <= 100, pointSize: 2.5, dateWindow: range });
  graph.axisShown = shown.axis;
};

// Those that are missing, or whose run has gone on since.
let isAsking = false;
const askForCurves = async () => {
  if (isAsking || document.hidden) return;
  isAsking = true;
  try {
    let isNew = false;
    for (const name of shown.chosen) {
      const run = runs.get(name);
      if (!run || (known.has(name) && known.get(name).step === run.step)) continue;
      const answer = await fetch(withKey("curves?name=" + encodeURIComponent(name)));
      if (!answer.ok) continue;
      known.set(name, { step: run.step, curves: await answer.json() });
      isNew = true;
    }
    if (isNew) drawCurves();
  } catch { /* the stream says that there is no server */ }
  isAsking = false;
};
setInterval(askForCurves, 2000);

const choose = (name, isChosen) => {
  shown.chosen = shown.chosen.filter((other) => other !== name);
  if (isChosen) shown.chosen.push(name);
  for (const dropped of shown.chosen.splice(0, shown.chosen.length - kMostCurves)) {
    const row = rowOf.get(dropped);  // gone, where its folder is
    if (row) row.querySelector("input").checked = false;
  }
  remember();
  element("curves").hidden = shown.chosen.length === 0;
  drawCurves();
  askForCurves();
};

for (const choice of element("curves").querySelectorAll("input")) {
  choice.checked = shown[choice.name] === choice.value;
  choice.addEventListener("change", () => {
    shown[choice.name] = choice.value;
    remember();
    drawCurves();
  });
}
onOtherColours(drawCurves);

// ---- which one to use ----

// Runs that read one text, the best first, and the settings in which they differ.
const showComparison = (groups) => {
  const heading = element("comparison").querySelector("h2");
  element("comparison").hidden = groups.length === 0;
  element("comparison").replaceChildren(heading, ...groups.flatMap((group) => {
    const table = make("table"), head = make("tr"), body = make("tbody"), scroll = make("div");
    head.append(...["Run", "Best " + group.what, ...group.settings].map((text) => make("th", text)));
    for (const cell of head.cells) cell.scope = "col";
    for (const run of group.runs) {
      const row = make("tr");
      row.append(...[run.name, exact(run.best), ...run.settings].map((text) => make("td", text)));
      body.append(row);
    }
    table.append(make("thead"), body);
    table.tHead.append(head);
    [scroll.className, scroll.tabIndex] = ["scroll", 0];
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Runs that read the same text");
    scroll.append(table);
    const rest = group.count - group.runs.length;
    return [make("p", group.verdict || "Nothing has been validated that could be compared."), scroll,
      ...(rest > 0 ? [make("p", "And " + whole(rest) + " more.")] : [])];
  }));
};

// Asked for again once a validation has had another result, or there are other runs.
const bestOfAll = () => JSON.stringify([...runs.values()].map((run) => [run.name, run.best]).sort());
let compared = "", isComparing = false;
const askForComparison = async () => {
  const best = bestOfAll();
  if (isComparing || document.hidden || best === compared) return;
  isComparing = true;
  try {
    const answer = await fetch(withKey("comparison"));
    if (answer.ok) {
      showComparison((await answer.json()).groups);
      compared = best;
    }
  } catch { /* the stream says that there is no server */ }
  isComparing = false;
};
setInterval(askForComparison, 5000);

// ---- as it happens ----

window.addEventListener("error", (event) => {
  element("failure").textContent = "This page cannot be shown in full: " + event.message;
  element("failure").hidden = false;
});
let since = null;  // nothing was heard
const showSoon = whenever(showTable);
listen("events", (message) => {
  if (message.is_whole) {
    for (const name of [...runs.keys()].filter((name) => !message.runs.some((run) => run.name === name))) {
      runs.delete(name);
      rowOf.delete(name);
    }
  }
  for (const run of message.runs) {
    runs.set(run.name, run);
    fill(run);
  }
  const isFirst = element("curves").hidden && shown.chosen.some((name) => runs.has(name));
  if (isFirst) element("curves").hidden = false;
  showSoon();
  if (isFirst) askForCurves();
  if (compared === "") askForComparison();
}, (isLost) => {
  since = isLost ? since || new Date() : null;
  element("connection").hidden = !isLost;
  element("connection").textContent = isLost ? "No answer from gpt-board since " + since.toLocaleTimeString("sv") + "; this page goes on by itself once there is one." : "";
});
