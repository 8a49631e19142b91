// The page of runs: the form, the figures of the present run. All text goes in as text, never as HTML.
"use strict";
const POLL_MS = 1000;
const root = document.body.dataset.root;
const $ = (id) => document.getElementById(id);
const form = $("form");
const charts = new LiveCharts($("charts"));
let seen = {run: "", version: 0, width_s: 0};
let formWanted = false;
let lastState = null;
let failures = 0;

async function call(path, body) {
  const options = body === undefined ? {} : {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)};
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

function fill(values) {
  for (const [name, value] of Object.entries(values)) {
    const input = form.elements[name];
    if (!input) continue;
    if (input.type === "checkbox") input.checked = value;
    else input.value = Array.isArray(value) ? value.join("\n") : value;
    if (input.tagName === "TEXTAREA") input.rows = Math.max(2, input.value.split("\n").length);
  }
}

function typed() {
  const found = {};
  for (const input of form.elements) {
    if (!input.name) continue;
    found[input.name] = input.type === "checkbox" ? input.checked : input.dataset.kind === "lines" ? input.value.split("\n") : input.value;
  }
  return found;
}

function showFaults(faults) {
  for (const field of form.querySelectorAll(".field")) {
    field.classList.remove("wrong");
    show(field.querySelector(".fault"), false);
    field.querySelector(".fault").textContent = "";
    field.querySelector("[name]").removeAttribute("aria-invalid");
  }
  const rest = [];
  let first = null;
  for (const fault of faults) {
    const fields = fault.fields.map((name) => form.querySelector(`.field[data-name="${CSS.escape(name)}"]`)).filter(Boolean);
    if (!fields.length) rest.push(fault.text);
    fields.forEach((field, place) => {
      field.classList.add("wrong");
      field.querySelector("[name]").setAttribute("aria-invalid", "true");
      if (place) return;
      const text = field.querySelector(".fault");
      text.textContent = (text.textContent ? text.textContent + "\n" : "") + fault.text;
      show(text, true);
      for (let parent = field.parentElement; parent; parent = parent.parentElement) if (parent.tagName === "DETAILS") parent.open = true;
      first = first || field;
    });
  }
  const banner = $("refused");
  const at = faults.length - rest.length;
  if (at) rest.push(`Not started: ${at === 1 ? "one entry needs" : `${at} entries need`} a change, see below.`);
  banner.textContent = rest.join("\n");
  show(banner, rest.length > 0);
  if (rest.length && !at) banner.scrollIntoView({block: "center"});
  if (first) first.scrollIntoView({block: "center", behavior: "smooth"});
}

function showRows(rows) {
  const table = $("preflight").querySelector("table");
  table.replaceChildren(...rows.map((row) => {
    const line = element("tr", undefined, row.level);
    line.append(element("th", row.name), element("td", row.value));
    return line;
  }));
  show($("preflight"), rows.length > 0);
}

async function attempt(path, waiting) {
  $("go").disabled = $("check").disabled = true;
  $("busy").textContent = waiting;
  try {
    const answer = await call(path, typed());
    if (!answer) return;
    showFaults(answer.faults);
    showRows(answer.rows);
    $("busy").textContent = answer.faults.length || answer.run ? "" : "All fits.";
    if (path === "/api/check" && answer.rows.length) $("preflight").scrollIntoView({block: "nearest", behavior: "smooth"});
    if (answer.run) {
      formWanted = false;
      for (const input of form.querySelectorAll("[type=password], .kind-secret-lines textarea")) input.value = "";
      await poll();
      scrollTo({top: 0});
    }
  } catch (error) {
    showFaults([{text: String(error.message || error), fields: []}]);
    $("busy").textContent = "";
  } finally {
    $("go").disabled = $("check").disabled = false;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt("/api/start", "Checking the server and the prompts …");
});
$("check").addEventListener("click", () => attempt("/api/check", "Checking the server and the prompts …"));
$("stop").addEventListener("click", () => call("/api/stop", {}).then(poll).catch(() => {}));
$("again").addEventListener("click", async () => {
  formWanted = true;
  fill((await call("/api/form")).values);
  showFaults([]);
  showRows([]);
  poll();
});

// ---------------------------------------------------------------- the figures

const CHIPS = {idle: "ready", checking: "checking", starting: "starting", running: "running", stopping: "stopping"};
const LATENCIES = [["ttft", "TTFT"], ["tpot", "TPOT"], ["itl", "ITL"], ["e2el", "E2EL"]];
const PERCENTILES = ["p50", "p90", "p99"];

function number(value, digits) {
  if (value === null || value === undefined) return "–";
  const shown = digits !== undefined ? digits : Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en", {minimumFractionDigits: shown, maximumFractionDigits: shown});
}

function tiles(all, gauges) {
  const made = [
    [number(all.completed, 0), "", "completed"],
    [number(all.failed, 0), "", "failed", all.failed ? "bad" : ""],
    [number(all.in_flight, 0), "", "in flight"],
    [number(gauges.waiting ?? 0, 0), "", "waiting at the client"],
    [number(all.output_tok_per_s), "tok/s", "output"],
    [number(all.tok_per_s_per_user), "tok/s", "per user"],
    [number(all.ttft.p50), "ms", "TTFT p50"],
    [number(all.itl.p50), "ms", "ITL p50"],
  ].map(([value, unit, title, style]) => {
    const tile = element("div", undefined, "tile");
    tile.append(element("b", value, style), " ", element("small", unit), element("span", title));
    return tile;
  });
  $("tiles").replaceChildren(...made);
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

// Meters are named "title of the chart: name of the line".
function meters(gauges) {
  const found = new Map();
  for (const name of Object.keys(gauges).filter((name) => name.includes(": "))) {
    const [title, line] = name.split(": ");
    if (!found.has(title)) found.set(title, []);
    found.get(title).push(["g:" + name, line]);
  }
  return [...found].map(([title, lines]) => ({title, lines}));
}

function display(status) {
  const {state, live, counts, outcome} = status;
  const busy = state === "running" || state === "stopping" || state === "starting";
  if (state !== lastState && busy) formWanted = false;
  const watch = status.run !== null && !formWanted && (busy || outcome !== null || live !== null);
  lastState = state;
  const chip = $("state");
  chip.textContent = CHIPS[state] + (status.workers === null ? "" : ` · ${status.workers} worker${status.workers === 1 ? "" : "s"}`);
  chip.className = "chip " + (state === "running" ? "good" : state === "idle" ? "" : "doubtful");
  show($("watch"), watch);
  show($("start"), !watch);
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
    banner.textContent = outcome.error ?? outcome.headline ?? "The run is over.";
    banner.className = "banner " + (outcome.error ? "bad" : outcome.style || "");
  }
  show($("progress"), counts !== null);
  if (counts) {
    $("progress").querySelector("i").style.width = `${100 * Math.min(1, counts.share ?? 0)}%`;
    const over = state === "stopping" && !counts.in_flight;
    $("progress").querySelector("span").textContent = over ? "writing the report …" : `${counts.phase} · ${counts.line}`;
  }
  if (live && watch) {
    const all = live.rows[0];
    soFar(live, all);
    show($("so-far"), busy);
    tiles(all, live.gauges);
    table(live.rows);
    charts.update(live.series, status.run !== seen.run || live.series.width_s !== seen.width_s, meters(live.series.gauges));
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
    display(status);
  } catch (error) {
    failures += 1;
    if (failures > 1) show($("offline"), true);
  }
}

async function main() {
  fill((await call("/api/form")).values);
  await poll();
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    if (!document.hidden) await poll();
  }
}

main();
