// What the pages share that show runs: numbers, charts, and how they hear of what changes. Texts that come from a run only ever become text
// nodes, so that nothing in them acts as HTML.
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

// ---- charts ----

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const theme = () => ({ gridLineColor: style("--grid"), axisLineColor: style("--line"), highlightCircleSize: 4 });

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

const legend = (data) => {
  const fragment = data.series.filter((series) => series.y !== undefined && !Number.isNaN(series.y) && series.isVisible)
    .map((series) => series.labelHTML + " <b style=\"color:" + series.color + "\">" + series.yHTML + "</b>");
  if (data.x === undefined) {
    if (data.series.length < 2) return "";
    return data.series.map((series) => "<b style=\"color:" + series.color + "\">" + series.labelHTML + "</b>").join(" &ensp; ");
  }
  return data.xHTML + ": " + fragment.join(", ");
};

// What an axis along the bottom shows. `place`: where a step is on it.
const timeUnitOf = (seconds) => [["days", 86400], ["hours", 3600], ["minutes", 60], ["seconds", 1]]
  .find(([, length]) => seconds >= 3 * length || length === 1);
const axisKinds = {
  steps: () => ({ title: "step", label: compact, told: (x) => "step " + whole(x) }),
  tokens: () => ({ title: "training tokens", label: compact, told: (x) => compact(x) + " tokens" }),
  time: (seconds) => {
    const unit = timeUnitOf(seconds)[0];
    return { title: "training time in " + unit, label: rounded, told: (x) => rounded(x) + " " + unit };
  },
};
const overAxis = (axis) => ({
  xlabel: axis.title,
  axes: { x: { axisLabelFormatter: (x) => axis.label(x), valueFormatter: (x) => axis.told(x), pixelsPerLabel: 70 } },
});
const chartOptions = (figure, axis, y) => ({
  labelsDiv: figure.querySelector(".values"),
  legend: "always",
  legendFormatter: legend,
  connectSeparatedPoints: true,
  interactionModel: interaction(),
  strokeWidth: 1.5,
  xRangePad: 4,
  yRangePad: 6,
  xlabel: axis.title,
  ylabel: figure.dataset.unit,
  xLabelHeight: 17,
  yLabelWidth: 17,
  axes: { ...overAxis(axis).axes, y: { axisLabelFormatter: y, valueFormatter: y, axisLabelWidth: 64, pixelsPerLabel: 34 } },
  ...theme(),
});
const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
const onOtherColours = (act) => matchMedia("(prefers-color-scheme: dark)").addEventListener("change", act);

// ---- curves ----

// What the tokens or the time of a run, which are known at the logged steps, were at any step.
const grownTo = (curve) => {
  const steps = [0, ...curve.steps], values = [0, ...curve.values];
  return (step) => {
    if (steps.length < 2) return step;
    if (step > steps.at(-1)) return values.at(-1);
    let before = 0, after = steps.length - 1;
    while (after - before > 1) {
      const middle = (before + after) >> 1;
      if (steps[middle] >= step) after = middle; else before = middle;
    }
    return values[before] + (values[after] - values[before]) / (steps[after] - steps[before]) * (step - steps[before]);
  };
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

// ---- what a server tells as it happens ----

const key = new URLSearchParams(location.search).get("token");
const withKey = (address) => key === null ? address : address + (address.includes("?") ? "&" : "?") + "token=" + encodeURIComponent(key);

// Calls take(message) for each, and lost(whether) when the connection is lost or there again. A browser tries again by itself, except where
// the server has answered that it may not.
const listen = (address, take, lost) => {
  const source = new EventSource(withKey(address));
  source.addEventListener("message", (event) => {
    lost(false);
    take(JSON.parse(event.data));
  });
  source.addEventListener("error", () => {
    lost(true);
    if (source.readyState === EventSource.CLOSED) setTimeout(() => listen(address, take, lost), 5000);
  });
};

// Calls show() soon, but so seldom that a slow device has time for something else, and not where nobody looks.
const whenever = (show) => {
  let isDue = false, isWaiting = false, ended = 0, took = 0;
  const run = () => {
    isWaiting = false;
    if (!isDue || document.hidden) return;
    isDue = false;
    const began = performance.now();
    show();
    ended = performance.now();
    took = ended - began;
  };
  const wait = () => {
    if (isWaiting) return;
    isWaiting = true;
    setTimeout(run, Math.max(0, ended + 3 * took - performance.now()));
  };
  document.addEventListener("visibilitychange", wait);
  return () => {
    isDue = true;
    wait();
  };
};
