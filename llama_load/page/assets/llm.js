// The page of runs: the form, the figures of the present run. All text goes in as text, never as HTML.
"use strict";
const POLL_MS = 1000;
const RUNNING_POLL_MS = 500;  // tokens are drawn within 2 s
const root = document.body.dataset.root;
const $ = (id) => document.getElementById(id);
const form = new StartForm($("form"), $("refused"));
const charts = new LiveCharts({large: $("charts"), small: $("more-charts"), client: $("client-charts")});
let seen = {run: "", version: 0, width_s: 0};
let formWanted = new URLSearchParams(location.search).has("like");  // run again with the values of a run
let lastState = null;
let failures = 0;
let waiting = false;

const WITHIN_MS = 15000;  // a page that is asked every second

async function call(path, body) {
  const options = body === undefined ? {signal: AbortSignal.timeout(WITHIN_MS)} : {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)};
  const answer = await fetch(root + path, {...options, credentials: "same-origin"});
  if (answer.redirected) return location.reload();
  if (!answer.ok && answer.status !== 422) throw new Error((await answer.text()).slice(0, 500));
  return answer.json();
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function show(node, wanted) {
  node.hidden = !wanted;
}

// ---------------------------------------------------------------- the form

function showRows(rows) {
  const table = $("preflight").querySelector("table");
  table.replaceChildren(...rows.map((row) => {
    const line = element("tr", undefined, row.level);
    line.append(element("th", row.name), element("td", row.value));
    return line;
  }));
  show($("preflight"), rows.length > 0);
}

async function attempt(path, what) {
  if (waiting) return;
  waiting = true;
  $("busy").textContent = "Checking the server and the prompts …";
  try {
    const answer = await call(path, form.typed());
    if (!answer) return;
    form.showFaults(answer.faults, what);
    showRows(answer.rows);
    $("busy").textContent = answer.faults.length || answer.run ? "" : "All fits.";
    if (path === "/api/check" && !answer.faults.length) $("preflight").scrollIntoView({block: "nearest", behavior: "smooth"});
    if (answer.run) {
      formWanted = false;
      form.forgetKeys();
      history.replaceState(null, "", root + "/");  // without the values of another run
      await poll();
      scrollTo({top: 0});
    }
  } catch (error) {
    form.showFaults([{text: String(error.message || error), fields: []}], what);
    $("busy").textContent = "";
  } finally {
    waiting = false;
  }
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt("/api/start", "Not started");
});
$("check").addEventListener("click", () => attempt("/api/check", "Checked"));
$("stop").addEventListener("click", () => call("/api/stop", {}).then(poll).catch(() => {}));
$("again").addEventListener("click", async () => {
  formWanted = true;
  await loadForm();
  form.showFaults([], "");
  showRows([]);
  await poll();
  $("start-title").focus();
});
for (const button of document.querySelectorAll(".preset")) button.addEventListener("click", () => form.preset(button));

async function loadForm() {
  const {values, defaults} = await call("/api/form" + location.search);
  form.defaults = defaults;
  form.fill(values);
  $("go").disabled = $("check").disabled = false;  // an empty form is none that somebody has filled
}

// ---------------------------------------------------------------- the figures

const CHIPS = {idle: "ready", checking: "checking", starting: "starting", running: "running", stopping: "stopping"};
const LATENCIES = [["ttft", "TTFT"], ["tpot", "TPOT"], ["itl", "ITL"], ["e2el", "E2EL"]];
const PERCENTILES = ["p50", "p90", "p99"];

function number(value, digits) {
  if (value === null || value === undefined) return "–";
  const shown = digits !== undefined ? digits : Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en", {minimumFractionDigits: shown, maximumFractionDigits: shown});
}

// The row of the present stage, all dashes until a request of it has ended; that of the run where there are no stages.
function presentRow(live) {
  const stage = live.stages[live.stages.length - 1];
  if (!stage) return live.rows[0];
  const own = live.rows.find((row) => row.kind === "stage" && row.name === stage.name);
  if (own || live.stages.length === 1) return own ?? live.rows[0];
  const none = {p50: null, p90: null, p99: null};
  return {...live.rows[0], completed: 0, failed: 0, failures: {}, output_tok_per_s: null, tok_per_s_per_user: null, ttft: none, tpot: none, itl: none, e2el: none};
}

// Live figures, the exact ones once there are any, and those of the last run with this label.
const TILES = [
  ["completed", "", (all) => all.completed, "completed", 0],
  ["failed", "", (all) => all.failed, "failed", 0],
  ["in flight", "", (all) => all.in_flight, null, 0],
  ["waiting at the client", "", (all, gauges) => gauges.waiting || undefined, null, 0],
  ["conversations alive", "", (all, gauges) => gauges.conversations, null, 0],
  ["output", "tok/s", (all) => all.output_tok_per_s, "output_throughput"],
  ["per user", "tok/s", (all) => all.tok_per_s_per_user, "tok_per_s_per_user"],
  ["TTFT p50", "ms", (all) => all.ttft.p50, "median_ttft_ms"],
  ["TPOT p50", "ms", (all) => all.tpot.p50, "median_tpot_ms"],
  ["ITL p50", "ms", (all) => all.itl.p50, "median_itl_ms"],
];

function tiles(all, gauges, exact, before) {
  const wanted = TILES.filter(([title, , live, key]) => (key || !exact) && (key || title === "in flight" || live(all, gauges) !== undefined));
  $("tiles").replaceChildren(...wanted.map(([title, unit, live, key, digits]) => {
    const value = exact && key in exact ? exact[key] : live(all, gauges);
    const tile = element("div", undefined, "tile");
    tile.append(element("b", number(value, digits), title === "failed" && value ? "bad" : ""), " ", element("small", unit), element("span", title));
    const last = before && key && digits === undefined ? before.figures[key] : undefined;
    if (last !== undefined) tile.append(element("span", `last run: ${number(last)}`, "last"));
    return tile;
  }));
}

function clock(seconds) {
  const whole = Math.ceil(seconds);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return (parts[0] ? `${parts[0]}:${String(parts[1]).padStart(2, "0")}` : `${parts[1]}`) + `:${String(parts[2]).padStart(2, "0")}`;
}

const TITLE = document.title;
function tabTitle(state, counts, outcome, watch) {
  if (counts && state === "running") {
    const left = counts.left_s === null ? counts.phase : `${clock(counts.left_s)} left`;
    return `${counts.share === null ? "" : `${Math.round(100 * Math.min(1, counts.share))} % · `}${left} · llama-load`;
  }
  if (state !== "idle") return `${CHIPS[state]} · llama-load`;
  return watch && outcome && outcome.headline ? `${outcome.headline.split(":")[0]} · llama-load` : TITLE;
}

function about(parts, before) {
  $("about").replaceChildren(...parts.flatMap(([name, text]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", text));
    return [pair];
  }));
  show($("last-run"), Boolean(before));
  if (before) {
    $("last-run").textContent = `last run with this label: ${before.run}`;
    $("last-run").href = `${root}/runs/${encodeURIComponent(before.run)}`;
  }
}

function table(rows) {
  const over = element("tr");
  const head = element("tr");
  for (const name of ["", "Requests", "Failed", "In flight", "Req/s", "tok/s", "per user"]) {
    over.append(element("th"));
    head.append(element("th", name));
  }
  for (const [, name] of LATENCIES) {
    const wide = element("th", `${name} (ms)`, "latency");
    wide.colSpan = PERCENTILES.length;
    over.append(wide);
    PERCENTILES.forEach((p, place) => head.append(element("th", p, place ? "" : "latency")));
  }
  const lines = rows.map((row) => {
    const line = element("tr");
    const name = row.kind === "all" ? "all" : `${row.kind} ${row.name}`;
    const title = element("th", name);
    title.title = name;
    line.append(title, element("td", number(row.completed, 0)));
    const failed = element("td", number(row.failed, 0), row.failed ? "bad" : "");
    failed.title = Object.entries(row.failures).map(([cause, count]) => `${count} ${cause}`).join(", ");
    line.append(failed, element("td", number(row.in_flight, 0)), element("td", number(row.requests_per_s)));
    line.append(element("td", number(row.output_tok_per_s)), element("td", number(row.tok_per_s_per_user)));
    for (const [key] of LATENCIES) PERCENTILES.forEach((p, place) => line.append(element("td", number(row[key][p]), place ? "" : "latency")));
    return line;
  });
  const body = element("tbody");
  body.append(...lines);
  const top = element("thead");
  top.append(over, head);
  $("figures").replaceChildren(top, body);
}

function soFar(view, all) {
  const lines = view.so_far.map(({word, text}) => {
    const line = element("li", undefined, word === "FAILED" ? "bad" : "doubtful");
    line.append(element("b", `${word} so far`), text);
    return line;
  });
  if (!lines.length && all.completed + all.failed > 0) {
    const line = element("li", undefined, "good");
    line.append(element("b", "No objection so far"), "the verdict is made at the end");
    lines.push(line);
  }
  const causes = Object.entries(all.failures);
  if (causes.length) lines.push(element("li", `Failures: ${causes.map(([cause, count]) => `${count} ${cause}`).join(", ")}`, "bad"));
  $("so-far").replaceChildren(...lines);
}

// What the client itself costs. See `llama_load.page.live_view`.
const OF_CLIENT = ["Lag of the client's loop", "Client waits for a core", "CPU of other programs", "CPU of a worker", "Master lag"];

// Meters are named "title of the chart (unit): name of the line".
function meters(gauges) {
  const found = new Map();
  for (const name of Object.keys(gauges).filter((name) => name.includes(": "))) {
    const [title, line] = name.split(": ");
    if (!found.has(title)) found.set(title, []);
    found.get(title).push(["g:" + name, line]);
  }
  return [...found].map(([name, lines]) => {
    const [, title, unit] = name.match(/^(.*?)(?: \((.*)\))?$/);
    return {title, unit: unit ?? "count", place: OF_CLIENT.includes(title) ? "client" : "small", lines};
  });
}

function display(status) {
  const {state, live, counts, outcome} = status;
  const busy = state === "running" || state === "stopping" || state === "starting";
  if (lastState !== null && state !== lastState && busy) formWanted = false;
  const watch = status.run !== null && !formWanted && (busy || outcome !== null || live !== null);
  lastState = state;
  const chip = $("state");
  chip.textContent = CHIPS[state] + (status.workers === null ? "" : ` · ${status.workers} worker${status.workers === 1 ? "" : "s"}`);
  chip.className = "chip " + (state === "running" ? "good" : state === "idle" ? "" : "doubtful");
  const hadFocus = $(watch ? "start" : "watch").contains(document.activeElement);
  show($("watch"), watch);
  show($("start"), !watch);
  if (hadFocus) $(watch ? "run-name" : "start-title").focus({preventScroll: true});
  document.title = tabTitle(state, counts, outcome, watch);
  show($("stop"), busy && !(state === "stopping" && counts && !counts.in_flight));
  $("stop").textContent = state === "stopping" ? "Cut off what is in flight" : "Stop";
  show($("again"), !busy);
  const results = $("results");
  show(results, !busy && outcome !== null && outcome.run !== null);
  if (outcome && outcome.run) results.href = `${root}/runs/${encodeURIComponent(outcome.run)}`;
  $("run-name").textContent = status.run ?? "";
  const banner = $("outcome");
  show(banner, outcome !== null && !busy);
  if (outcome && !busy) {
    const [word, ...rest] = (outcome.error ?? outcome.headline ?? "The run is over.").split(": ");
    const small = document.createElement("small");
    small.textContent = rest.length ? ` ${rest.join(": ")}` : "";
    banner.replaceChildren(word, small);
    banner.className = "banner " + (outcome.error ? "bad" : outcome.style || "");
  }
  show($("progress"), counts !== null);
  if (counts) {
    const percent = Math.round(100 * Math.min(1, counts.share ?? 0));
    $("progress").querySelector("i").style.width = `${percent}%`;
    $("bar").setAttribute("aria-valuenow", percent);
    const over = state === "stopping" && !counts.in_flight;
    $("progress").querySelector("span").textContent = over ? "writing the report …" : `${counts.phase}${counts.elapsed_s === null ? "" : ` for ${clock(counts.elapsed_s)}`} · ${counts.line}`;
  }
  if (live && watch) {
    const all = live.rows[0];
    soFar(live, all);
    show($("so-far"), busy);
    const stage = live.stages[live.stages.length - 1];
    show($("tiles-of"), Boolean(busy && stage));
    $("tiles-of").textContent = stage ? `Stage ${stage.name}, which goes on` : "";
    tiles(busy ? presentRow(live) : all, live.gauges, busy || !outcome ? null : outcome.figures, busy && stage ? null : status.before);
    about(status.about, status.before);
    table(live.rows);
    if (!busy) live.series.settled_s = Infinity;  // nothing is under way
    charts.update(live.series, status.run !== seen.run || live.series.width_s !== seen.width_s, meters(live.series.gauges), live.stages);
    show($("of-client"), $("client-charts").childElementCount > 0);
    seen = {run: status.run, version: live.series.version, width_s: live.series.width_s};
  }
}

async function poll() {
  try {
    const query = new URLSearchParams({run: seen.run, version: seen.version, width_s: seen.width_s});
    const status = await call(`/api/live?${query}`);
    if (!status) return;
    failures = 0;
    show($("offline"), false);
    if ($("go").disabled) await loadForm();
    display(status);
  } catch (error) {
    failures += 1;
    if (failures > 1) show($("offline"), true);
  }
}

async function main() {
  await loadForm().catch(() => show($("offline"), true));
  await poll();
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, lastState === "running" ? RUNNING_POLL_MS : POLL_MS));
    if (!document.hidden) await poll();
  }
}

main();
