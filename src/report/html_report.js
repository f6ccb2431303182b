"use strict";
// Shows the run in <script id="run">. Its texts only ever become text nodes, so that nothing in them acts as HTML.
(() => {
  const run = JSON.parse(document.getElementById("run").textContent);
  const element = (id) => document.getElementById(id);
  const make = (tag, text) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // ---- numbers as people read them ----

  const whole = (value) => Number(value).toLocaleString("en");
  const rounded = (value) => Number(value).toLocaleString("en", { maximumSignificantDigits: 4, useGrouping: Math.abs(value) >= 1e4 });
  const compact = (value) => Number(value).toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
  const short = (value) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size > 0 && size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, "e");
    return size >= 1e5 ? compact(value) : rounded(value);
  };
  const exact = (value) => Number.isFinite(value ?? NaN) ? value.toFixed(4) : "–";
  const percent = (share) => (100 * share).toFixed(1) + "%";
  const done = (share) => (Math.floor(1000 * share) / 10).toFixed(1) + "%";  // 100% is the end
  const duration = (seconds) => {
    const whole = Math.round(seconds);
    if (whole < 60) return whole + " s";
    if (whole < 600) return Math.floor(whole / 60) + " min" + (whole % 60 ? " " + whole % 60 + " s" : "");
    const minutes = Math.round(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
    if (days >= 3) return days + " days";
    return hours > 0 ? hours + "h " + String(minutes % 60).padStart(2, "0") + "m" : minutes + " min";
  };
  const moment = (seconds) => new Date(1000 * seconds).toLocaleString("sv");  // 2026-11-22 14:05:09, in local time

  // ---- the head: progress and figures ----

  // A run that was killed cannot say so. A page that is much older than its run was ever silent is probably of such a one.
  const isSilent = () => Date.now() / 1000 - run.written > Math.max(300, 3 * run.silent_seconds);

  const showHead = () => {
    const isTraining = !run.has_ended && !run.stopped, isLost = isTraining && isSilent();
    const share = run.total_steps > 0 ? Math.min(1, run.step / run.total_steps) : 0;
    const latest = run.latest || {};
    const left = run.total_steps - run.step;
    const begin = run.has_ended ? "Finished: " : run.stopped ? "Stopped at " : isLost ? "Last heard of at " : "Training: ";
    let status = begin + "step " + whole(run.step) + " of " + whole(run.total_steps) + " (" + done(share) + ")";
    if (isTraining && !isLost && left > 0 && latest.step_ms > 0) status += ", about " + duration(left * latest.step_ms / 1000) + " left";
    if (run.stopped) status += " " + run.stopped;
    if (isTraining) status += isLost ? ", on " + moment(run.written) : ", as of " + moment(run.written);
    status += isLost ? ". Reload this page: if it stays as it is, the run was killed, or this file is a copy. The command that began the run resumes it." : ".";
    document.title = (run.name ? run.name + " – " : "")
      + (run.has_ended ? "finished" : (run.stopped ? "stopped at " : isLost ? "last heard of at " : "") + done(share));
    element("name").textContent = run.name || "Training report";
    element("status").textContent = status;
    element("progress").value = share;
  };

  const showFigures = () => {
    const figure = (name, value, ...notes) => {
      const row = make("div"), shown = make("dd", value);
      shown.append(...notes.map((note) => make("small", note)));
      row.append(make("dt", name), shown);
      element("figures").append(row);
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
    figure("Parameters", compact(run.parameters));
    // In two rows of the same length, where one is not enough.
    const tiles = element("figures").children.length, kMostInARow = 6;
    element("figures").style.setProperty("--tiles", tiles > kMostInARow ? Math.ceil(tiles / 2) : tiles);
  };

  // ---- what the charts stand over: steps, tokens or time ----

  // What the tokens or the time of a run, which are known at the logged steps, were at any step.
  const grownTo = (curve) => (step) => {
    const steps = [0, ...curve.steps], values = [0, ...curve.values];
    if (steps.length < 2) return step;
    const after = Math.min(Math.max(1, steps.findIndex((one) => one >= step)), steps.length - 1), before = after - 1;
    const slope = (values[after] - values[before]) / (steps[after] - steps[before]);
    return step > steps.at(-1) ? values.at(-1) : values[before] + slope * (step - steps[before]);
  };

  const timeUnit = [["days", 86400], ["hours", 3600], ["minutes", 60], ["seconds", 1]]
    .find(([, seconds]) => run.seconds >= 3 * seconds || seconds === 1);
  const secondsAt = grownTo(run.curves.seconds);
  const axes = {
    steps: { title: "step", place: (step) => step, label: compact, told: (x) => "step " + whole(x) },
    tokens: { title: "training tokens", place: grownTo(run.curves.tokens), label: compact, told: (x) => compact(x) + " tokens" },
    time: { title: "training time in " + timeUnit[0], place: (step) => secondsAt(step) / timeUnit[1], label: rounded,
      told: (x) => rounded(x) + " " + timeUnit[0] },
  };
  let axis = axes[location.hash.slice(1)] || axes.steps;

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

  // An exponential moving average that starts with the first value instead of at zero.
  const smoothed = (curve, weight) => {
    let sum = 0, total = 0;
    const values = curve.values.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      total = weight * total + (1 - weight);
      return sum / total;
    });
    return { steps: curve.steps, values };
  };

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const theme = () => ({ gridLineColor: style("--grid"), axisLineColor: style("--line"), highlightCircleSize: 4 });
  const charts = [];  // {graph, rows: a function, colors: names of CSS variables}

  // One finger scrolls the page and two zoom the chart; dygraphs alone would let a chart hold the page fast.
  const interaction = () => {
    const model = { ...Dygraph.defaultInteractionModel };
    for (const name of ["touchstart", "touchmove"]) {
      const original = model[name];
      model[name] = (event, graph, context) => {
        if (event.touches.length > 1) original(event, graph, context);
      };
    }
    return model;
  };

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

  const legend = (data) => {
    const fragment = data.series.filter((series) => series.y !== undefined && !Number.isNaN(series.y) && series.isVisible)
      .map((series) => series.labelHTML + " <b style=\"color:" + series.color + "\">" + series.yHTML + "</b>");
    if (data.x === undefined) {
      if (data.series.length < 2) return "";
      return data.series.map((series) => "<b style=\"color:" + series.color + "\">" + series.labelHTML + "</b>").join(" &ensp; ");
    }
    return data.xHTML + ": " + fragment.join(", ");
  };

  const overAxis = () => ({
    xlabel: axis.title,
    axes: { x: { axisLabelFormatter: (x) => axis.label(x), valueFormatter: (x) => axis.told(x), pixelsPerLabel: 70 } },
  });

  const draw = (figure, names, colors, rows, options) => {
    const y = figure.dataset.chart === "mfu" ? percent : short;
    const graph = new Dygraph(figure.querySelector(".chart"), rows(), {
      labels: ["step", ...names],
      colors: colors.map(style),
      labelsDiv: figure.querySelector(".values"),
      legend: "always",
      legendFormatter: legend,
      connectSeparatedPoints: true,
      interactionModel: interaction(),
      drawCallback: follow,
      strokeWidth: 1.5,
      xRangePad: 4,
      yRangePad: 6,
      xlabel: axis.title,
      ylabel: figure.dataset.unit,
      xLabelHeight: 17,
      yLabelWidth: 17,
      axes: { ...overAxis().axes, y: { axisLabelFormatter: y, valueFormatter: y, axisLabelWidth: 64, pixelsPerLabel: 34 } },
      ...theme(),
      ...options,
    });
    charts.push({ graph, rows, colors });
    return graph;
  };

  const drawLoss = (figure) => {
    const { loss, mean_loss, validation_loss } = run.curves;
    const slider = element("smoothing");
    slider.value = mean_loss.steps.length > 50 ? 0.6 : 0;
    const rows = () => {
      slider.nextElementSibling.value = Number(slider.value).toFixed(2);
      return table([loss, smoothed(mean_loss, Number(slider.value)), validation_loss]);
    };
    const points = validation_loss.steps.length <= 100;
    const graph = draw(figure, ["training", "smoothed", "validation"], ["--faint", "--first", "--second"], rows, {
      series: { training: { strokeWidth: 1 }, smoothed: { strokeWidth: 2 }, validation: { strokeWidth: 2, drawPoints: points, pointSize: 3 } },
    });
    slider.addEventListener("input", () => graph.updateOptions({ file: rows() }));
  };

  // A chart for each task, after those that every run has.
  const addTasks = () => {
    for (const name of run.tasks) {
      const figure = make("figure"), caption = make("figcaption"), values = make("span"), chart = make("div");
      [figure.dataset.chart, figure.dataset.unit, values.className, chart.className] = [name, name.split(" ").at(-1), "values", "chart"];
      caption.append(make("h2", name), values);
      figure.append(caption, chart);
      element("hint").before(figure);
    }
  };

  const drawAll = () => {
    addTasks();
    // Those without a curve go first: how wide a chart is depends on how many there are.
    const figures = [...document.querySelectorAll("figure[data-chart]")].filter((figure) => {
      const name = figure.dataset.chart, names = name === "loss" ? [name, "validation_loss"] : [name];
      const hasCurve = names.some((curve) => run.curves[curve].steps.length > 0);
      if (!hasCurve) figure.remove();
      return hasCurve;
    });
    for (const figure of figures) {
      const name = figure.dataset.chart;
      if (name === "loss") {
        drawLoss(figure);
      } else {
        const { steps } = run.curves[name];
        draw(figure, [figure.querySelector("h2").textContent.toLowerCase()], ["--first"], () => table([run.curves[name]]),
          { drawPoints: steps.length <= 50, pointSize: 2.5, strokeWidth: 1.25, includeZero: name === "peak_memory_mb" });
      }
    }
    element("axis").hidden = element("hint").hidden = charts.length === 0;
    for (const choice of document.querySelectorAll("#axis input")) {
      choice.checked = axes[choice.value] === axis;
      choice.addEventListener("change", () => {
        axis = axes[choice.value];
        following = true;  // each is told by itself
        for (const { graph, rows } of charts) graph.updateOptions({ file: rows(), dateWindow: null, ...overAxis() });
        following = false;
      });
    }
    element("no-curves").hidden = charts.length > 0;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const { graph, colors } of charts) graph.updateOptions({ ...theme(), colors: colors.map(style) });
    });
  };

  // ---- samples, events and the rest ----

  const showSamples = () => {
    const kOpen = 3;  // the others are folded away
    const samples = run.samples.slice().reverse().map((sample) => {
      const article = make("article");
      article.append(make("h3", "Step " + whole(sample.step)), make("pre", sample.text));
      return article;
    });
    element("samples").hidden = samples.length === 0;
    element("samples").append(...samples.slice(0, kOpen));
    if (samples.length <= kOpen) return;
    const earlier = make("details");
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
    element("events").querySelector("tbody").append(...rows);
  };

  window.addEventListener("error", (event) => {
    element("failure").textContent = "This report cannot be shown in full: " + event.message;
    element("failure").hidden = false;
  });
  showHead();
  setInterval(showHead, 30e3);
  showFigures();
  showSamples();
  showEvents();
  element("machine").textContent = run.machine;
  element("configuration").textContent = run.configuration;
  element("written").textContent = moment(run.written);
  drawAll();
  document.body.dataset.charts = charts.length;
})();
