// Shows the run in <script id="run">, or as the server tells where that only names the stream to listen to.
const run = { curves: {}, tasks: [], layers: [], samples: [], events: [], ...JSON.parse(element("run").textContent) };
const curveOf = (name) => run.curves[name] || { steps: [], values: [] };

// ---- the head: progress and figures ----

// A run that was killed cannot say so. A page that is much older than its run was ever silent is probably of such a one.
const isSilent = () => Date.now() / 1000 - run.written > Math.max(300, 3 * run.silent_seconds);

const shareDone = () => run.total_steps > 0 ? Math.min(1, run.step / run.total_steps) : 0;
const howFar = () => "step " + whole(run.step) + " of " + whole(run.total_steps) + " (" + done(shareDone()) + ")";

// The words of a page that is a file: [what stands in the title, what stands on the page].
const wordsOfFile = () => {
  const isTraining = !run.has_ended && !run.stopped, isLost = isTraining && isSilent();
  const latest = run.latest || {};
  const left = run.total_steps - run.step;
  let status = (run.has_ended ? "Finished: " : run.stopped ? "Stopped at " : isLost ? "Last heard of at " : "Training: ") + howFar();
  if (isTraining && !isLost && left > 0 && latest.step_ms > 0) status += ", about " + duration(left * latest.step_ms / 1000) + " left";
  if (run.stopped) status += " " + run.stopped;
  if (isTraining) status += isLost ? ", on " + moment(run.written) : ", as of " + moment(run.written);
  status += isLost ? ". Reload this page: if it stays as it is, the run was killed, or this file is a copy. The command that began the run resumes it." : ".";
  return [run.has_ended ? "finished" : (run.stopped ? "stopped at " : isLost ? "last heard of at " : "") + done(shareDone()), status];
};

const wordsOfLive = () => {
  const { state, activity, remaining_seconds, silent_seconds } = run.live;
  if (state === "starting")
    return ["starting", "Starting: it reads its data, which may have to be prepared, or a checkpoint, or looks for its learning rate." + (run.step > 0 ? " It was at " + howFar() + "." : "")];
  if (state === "done") return ["finished", "Finished: " + howFar() + "."];
  if (state === "stopped") return ["stopped at " + done(shareDone()), "Stopped at " + howFar() + " " + run.stopped + "."];
  if (state === "killed")
    return ["killed at " + done(shareDone()), "Killed at " + howFar() + ", on " + moment(run.written)
      + ": its process ended without a word, by a signal, a lack of memory, or with its machine. The command that began the run resumes it."];
  if (state !== "running") return [done(shareDone()), "At " + howFar() + "."];
  const words = activity.charAt(0).toUpperCase() + activity.slice(1) + ": " + howFar() + (remaining_seconds > 0 ? ", about " + duration(remaining_seconds) + " left" : "");
  return [done(shareDone()), words + (silent_seconds > 0 ? ". Its process is there, but has done nothing for " + duration(silent_seconds) + "." : ".")];
};

const showHead = () => {
  const [title, status] = run.live ? wordsOfLive() : wordsOfFile();
  document.title = (run.name ? run.name + " – " : "") + title;
  element("name").textContent = run.name || "Training report";
  element("status").textContent = status;
  element("status").className = run.live && (run.live.state === "killed" || run.live.silent_seconds > 0) ? "failure" : "";
  element("progress").value = shareDone();
};

const showFigures = () => {
  const rows = [];
  const figure = (name, value, ...notes) => {
    const row = make("div"), shown = make("dd", value);
    shown.append(...notes.map((note) => make("small", note)));
    row.append(make("dt", name), shown);
    rows.push(row);
  };
  const { latest, evaluation, best } = run;
  if (latest) figure("Training loss", exact(latest.loss), "perplexity " + short(Math.exp(latest.loss ?? NaN)));
  const bestNote = best ? ["best " + exact(best.loss) + " at step " + whole(best.step)] : [];
  if (evaluation) figure("Validation loss", exact(evaluation.loss), "perplexity " + short(evaluation.perplexity), ...bestNote);
  if (evaluation && evaluation.bits_per_byte !== null) figure("Bits per byte", exact(evaluation.bits_per_byte));
  if (latest) {
    figure("Tokens/s", short(latest.tokens_per_second), short(latest.step_ms) + " ms per step");
    const speed = latest.mfu === null ? [] : [percent(latest.mfu) + " of peak speed"];
    figure("Peak memory", whole(Math.round(latest.peak_memory_mb ?? NaN)) + " MB", ...speed);
    figure("Learning rate", short(latest.learning_rate));
  }
  if (run.efficiency) figure("Efficiency", (100 * run.efficiency).toFixed(0) + "%", "of what a large product and a large copy would allow");
  if (run.seconds > 0) figure("Training time", duration(run.seconds), compact(run.tokens) + " tokens");
  if (run.epochs > 0) figure("Epochs", run.epochs.toLocaleString("en", { maximumFractionDigits: 1 }), "in all");
  if (run.parameters > 0 || !run.live) figure("Parameters", compact(run.parameters));
  // In two rows of the same length, where one is not enough.
  const tiles = rows.length, kMostInARow = 6;
  element("figures").replaceChildren(...rows);
  element("figures").style.setProperty("--tiles", tiles > kMostInARow ? Math.ceil(tiles / 2) : Math.max(1, tiles));
};

// ---- what the charts stand over: steps, tokens or time ----

const axisNamed = (name) => {
  const kind = axisKinds[name](run.seconds);
  if (name === "steps") return { ...kind, place: (step) => step };
  if (name === "tokens") return { ...kind, place: grownTo(curveOf("tokens")) };
  const secondsAt = grownTo(curveOf("seconds")), length = timeUnitOf(run.seconds)[1];
  return { ...kind, place: (step) => secondsAt(step) / length };
};
let axisName = axisKinds[location.hash.slice(1)] ? location.hash.slice(1) : "steps";
let axis = null;

// ---- the charts ----

// Rows [x, a, b, ...] of curves with steps of their own. A row has null where a curve has no point at its step, and NaN
// where the value was not finite: dygraphs draws the line through the first and interrupts it at the second.
// All tables begin and end at the same steps, so that charts which stand above each other show the same range.
const table = (curves) => {
  const rows = new Map();
  for (const curve of Object.values(run.curves)) {
    for (const step of [curve.steps[0], curve.steps.at(-1)]) {
      if (step !== undefined) rows.set(step, [step, ...curves.map(() => null)]);
    }
  }
  curves.forEach((curve, column) => curve.steps.forEach((step, i) => {
    if (!rows.has(step)) rows.set(step, [step, ...curves.map(() => null)]);
    rows.get(step)[column + 1] = curve.values[i] === null ? NaN : curve.values[i];
  }));
  return [...rows.values()].sort((a, b) => a[0] - b[0]).map(([step, ...values]) => [axis.place(step), ...values]);
};

const charts = [];  // {graph, rows, options and colors: functions}

// Zooming into steps on one chart does so on all of them.
let following = false;
const follow = (graph, isInitial) => {
  if (isInitial || following) return;
  following = true;
  const dateWindow = graph.isZoomed("x") ? graph.xAxisRange() : null;
  for (const other of charts) {
    if (other.graph !== graph) other.graph.updateOptions({ dateWindow });
  }
  following = false;
};

const draw = (figure, names, colors, rows, options) => {
  const y = ["mfu", "gpu_busy", "device_memory"].includes(figure.dataset.chart) ? percent : short;
  const graph = new Dygraph(figure.querySelector(".chart"), rows(), {
    labels: ["step", ...names],
    colors: colors(),
    drawCallback: follow,
    ...chartOptions(figure, axis, y),
    ...options(),
  });
  charts.push({ name: figure.dataset.chart, graph, rows, options, colors });
};

const drawLoss = (figure) => {
  const slider = element("smoothing");
  let isChosen = false;  // otherwise it is smoothed where there is something to smooth
  const rows = () => {
    const mean = curveOf("mean_loss");
    if (!isChosen) slider.value = mean.steps.length > 50 ? 0.6 : 0;
    slider.nextElementSibling.value = Number(slider.value).toFixed(2);
    return table([curveOf("loss"), smoothed(mean, Number(slider.value)), curveOf("validation_loss")]);
  };
  const options = () => ({
    series: { training: { strokeWidth: 1 }, smoothed: { strokeWidth: 2 },
      validation: { strokeWidth: 2, drawPoints: curveOf("validation_loss").steps.length <= 100, pointSize: 3 } },
  });
  draw(figure, ["training", "smoothed", "validation"], () => ["--faint", "--first", "--second"].map(style), rows, options);
  const { graph } = charts.at(-1);
  slider.addEventListener("input", () => {
    isChosen = true;
    graph.updateOptions({ file: rows() });
  });
};

const kFromZero = ["peak_memory_mb", "gpu_busy", "cores_busy", "device_memory"];
const drawCurve = (figure) => {
  const name = figure.dataset.chart, hasOthers = name === "cores_busy" && hasCurve("cores_others");
  const names = hasOthers ? ["this run", "other programs"] : [figure.querySelector("h2").textContent.toLowerCase()];
  draw(figure, names, () => ["--first", "--second"].slice(0, names.length).map(style), () => table([name, "cores_others"].slice(0, names.length).map(curveOf)),
    () => ({ drawPoints: curveOf(name).steps.length <= 50, pointSize: 2.5, strokeWidth: 1.25, includeZero: kFromZero.includes(name) }));
};

// From the first layer to the last, from blue to red.
const colourOfLayer = (i) => "hsl(" + (216 + 150 * i / Math.max(1, run.layers.length - 1)) + (isDark() ? " 85% 70%)" : " 75% 42%)");
const isOfLayers = (name) => name.startsWith("layer_");
const drawLayers = (figure) => draw(figure, run.layers, () => run.layers.map((_, i) => colourOfLayer(i)),
  () => table(run.layers.map((layer) => curveOf(figure.dataset.chart + " " + layer))), () => ({ logscale: true, strokeWidth: 1.25 }));

// Those of every run, and a chart for each task. They stand on the page once they have a curve: how wide a chart is depends on how many
// there are.
const figures = [...document.querySelectorAll("figure[data-chart]")];
const homes = new Map(figures.map((figure) => [figure, figure.parentElement]));
const homeOf = (figure) => homes.get(figure) || element("charts");
for (const figure of figures) figure.remove();

const addTasks = () => {
  for (const name of run.tasks.filter((task) => !figures.some((figure) => figure.dataset.chart === task))) {
    const figure = make("figure"), caption = make("figcaption"), values = make("span"), chart = make("div");
    [figure.dataset.chart, figure.dataset.unit, values.className, chart.className] = [name, name.split(" ").at(-1), "values", "chart"];
    caption.append(make("h2", name), values);
    figure.append(caption, chart);
    figures.push(figure);
  }
};

const curvesIn = (name) => name === "loss" ? [name, "validation_loss"] : isOfLayers(name) ? run.layers.map((layer) => name + " " + layer) : [name];
const hasCurve = (name) => curvesIn(name).some((curve) => curveOf(curve).steps.length > 0);

const showCharts = () => {
  axis = axisNamed(axisName);
  following = true;  // each is told by itself
  for (const { graph, rows, options } of charts) graph.updateOptions({ file: rows(), ...overAxis(axis), ...options() });
  addTasks();
  const fresh = figures.filter((figure) => !figure.isConnected && hasCurve(figure.dataset.chart));
  for (const figure of fresh) {
    const home = homeOf(figure);
    const next = figures.slice(figures.indexOf(figure) + 1).find((other) => other.isConnected && homeOf(other) === home);
    home.insertBefore(figure, next || home.querySelector(".hint"));
  }
  if (fresh.length > 0) for (const { graph } of charts) graph.resize();
  for (const figure of fresh) (figure.dataset.chart === "loss" ? drawLoss : isOfLayers(figure.dataset.chart) ? drawLayers : drawCurve)(figure);
  following = false;
  element("axis").hidden = element("hint").hidden = charts.length === 0;
  element("no-curves").hidden = charts.length > 0;
  document.body.dataset.charts = charts.length;
};

for (const choice of document.querySelectorAll("#axis input")) {
  choice.checked = choice.value === axisName;
  choice.addEventListener("change", () => {
    axisName = choice.value;
    for (const { graph } of charts) graph.updateOptions({ dateWindow: null }, /*block_redraw=*/true);
    showCharts();
  });
}
onOtherColours(() => {
  for (const { graph, colors } of charts) graph.updateOptions({ ...theme(), colors: colors() });
});

// ---- samples, events and the rest ----

const showSamples = () => {
  const kOpen = 3;  // the others are folded away
  const samples = run.samples.slice().reverse().map((sample) => {
    const article = make("article");
    article.append(make("h3", "Step " + whole(sample.step)), make("pre", sample.text));
    return article;
  });
  const heading = element("samples").querySelector("h2"), wasOpen = element("samples").querySelector("details")?.open;
  element("samples").hidden = samples.length === 0;
  element("samples").replaceChildren(heading, ...samples.slice(0, kOpen));
  if (samples.length <= kOpen) return;
  const earlier = make("details");
  earlier.open = wasOpen || false;
  earlier.append(make("summary", "Earlier samples (" + (samples.length - kOpen) + ")"), ...samples.slice(kOpen));
  element("samples").append(earlier);
};

const showEvents = () => {
  const rows = run.events.slice().reverse().map((event) => {
    const row = make("tr");
    const times = event.times > 1 ? " (the last of " + whole(event.times) + " times)" : "";
    row.append(make("td", whole(event.step)), make("td", moment(event.time)), make("td", event.what + times));
    return row;
  });
  element("events").hidden = rows.length === 0;
  element("events").querySelector("tbody").replaceChildren(...rows);
};

// As lines of the log have it: "2026-11-22 14:05:09 warning: ..."
const showWarnings = () => {
  const warnings = run.live ? run.live.warnings : [];
  element("warnings").hidden = warnings.length === 0;
  element("warnings").querySelector("ul").replaceChildren(...warnings.slice().reverse().map((warning) => {
    const [, when, what] = /^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) warning: ([^]*)$/.exec(warning) || [null, "", warning], item = make("li");
    item.append(...(when ? [make("small", when), " "] : []), what);
    return item;
  }));
};

const showDevice = () => {
  const { verdicts, read } = run.device || { verdicts: [], read: [] };
  element("device").hidden = !run.device;
  element("device").querySelector("ul").replaceChildren(...verdicts.map((verdict) => make("li", verdict)));
  element("device").querySelector(".hint").replaceChildren(...read.map((text, i) => make("div", (i ? "" : "Last reading: ") + text + ".")));
};

const showLayers = () => {
  const kMost = 8;  // of RunHistory
  element("layers").hidden = run.layers.length === 0;
  element("layers").querySelector(".hint").textContent = "Norms by layer, before clipping. An update is often about a thousandth of the weights. A layer far from "
    + "its neighbours is worth a look." + (run.layers.length < kMost ? "" : " metrics.jsonl has all layers.");
};

const showNumbers = () => {
  showHead();
  showFigures();
  showDevice();
  showLayers();
  showCharts();
};
const showTexts = (changed) => {
  if (changed.samples) showSamples();
  if (changed.events) showEvents();
  if (changed.live) showWarnings(), showControl();
  if (changed.machine !== undefined) element("machine").textContent = run.machine;
  if (changed.configuration !== undefined) element("configuration").textContent = run.configuration;
  element("written").textContent = moment(run.written);
};

// ---- what the run is told, where the page's server lets it ----

const showControl = () => {
  const mayBeTold = run.live !== undefined && run.live.may_be_told;
  element("control").hidden = !mayBeTold;
  if (!mayBeTold) return;
  const isPaused = run.live.activity === "paused", toggle = element("control").querySelector("button");
  toggle.dataset.verb = isPaused ? "continue" : "pause";
  toggle.textContent = isPaused ? "Continue" : "Pause";
};

const tell = async (button) => {
  const { verb } = button.dataset, request = verb === "rate" ? { verb, value: Number(element("factor").value) } : { verb };
  if (verb === "stop" && !confirm("Stop the run? It saves first, and the command that began it resumes it.")) return;
  element("answer").textContent = "…";
  button.disabled = true;
  try {
    const answer = await fetch(withKey(run.tell), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request) });
    const text = await answer.text();
    element("answer").textContent = answer.headers.get("Content-Type") === "application/json" ? JSON.parse(text).said : text;
  } catch {
    element("answer").textContent = "No answer came.";
  }
  button.disabled = false;
};
for (const button of element("control").querySelectorAll("button")) button.addEventListener("click", () => tell(button));

// ---- as it happens ----

// The points of a message take the place of those from its first step on.
const merge = (message) => {
  if (message.is_whole) run.curves = {};
  for (const [name, { steps, values, from = 0 }] of Object.entries(message.curves || {})) {
    const known = run.curves[name] || (run.curves[name] = { steps: [], values: [] });
    let kept = known.steps.length;
    while (kept > 0 && known.steps[kept - 1] >= from) --kept;
    run.curves[name] = { steps: [...known.steps.slice(0, kept), ...steps], values: [...known.values.slice(0, kept), ...values] };
  }
  const { curves, ...rest } = message;
  Object.assign(run, rest);
};

const followLive = () => {
  const showSoon = whenever(showNumbers);
  let since = null;  // nothing was heard
  const lost = (isLost) => {
    since = isLost ? since || new Date() : null;
    const hasEnded = run.live && (run.live.state === "done" || run.live.state === "stopped");
    element("connection").hidden = !isLost;
    element("connection").textContent = !isLost ? "" : hasEnded ? "The page is not live any more: gpt-board has ended."
      : "No answer from gpt-board since " + since.toLocaleTimeString("sv") + "; this page goes on by itself once there is one.";
  };
  element("all").hidden = !run.has_others;
  element("all").querySelector("a").href = withKey("./");
  listen(run.stream, (message) => {
    merge(message);
    showTexts(message);
    showSoon();
  }, lost);
};

window.addEventListener("error", (event) => {
  element("failure").textContent = "This page cannot be shown in full: " + event.message;
  element("failure").hidden = false;
});
if (run.stream) {
  element("name").textContent = run.name;
  document.title = run.name;
  followLive();
} else {
  showNumbers();
  showTexts(run);
  setInterval(showHead, 30e3);
}
