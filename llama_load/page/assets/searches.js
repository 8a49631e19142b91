// The page of searches and sweeps: start one, watch it, stop it.
"use strict";
const root = document.body.dataset.root;
const $ = (id) => document.getElementById(id);

function showFault(text) {
  $("fault").textContent = text;
  $("fault").hidden = !text;
  if (text) $("fault").focus();
}

async function call(path, body) {
  const options = body === undefined ? {} : {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)};
  const answer = await fetch(root + path, {...options, credentials: "same-origin"});
  if (!answer.ok && answer.status !== 422) throw new Error((await answer.text()).slice(0, 500));
  return answer.json();
}

function display(status) {
  $("present").hidden = status === null;
  for (const form of document.querySelectorAll(".start-one")) form.hidden = status !== null && status.running;
  if (status === null) return;
  const {state, running} = status;
  $("title").textContent = status.title;
  $("stop").hidden = !running;
  $("stop").textContent = status.stopping ? "End it at once" : "Stop";
  $("result").hidden = !status.has_result;
  const words = state?.sentence || (running ? "it runs" : status.exit_code === 0 ? "it has ended" : `it ended with exit code ${status.exit_code}`);
  if ($("sentence").textContent !== words) $("sentence").textContent = words;
  const minutes = (status.elapsed_s / 60).toFixed(1);
  const pairs = [["folder", status.folder], ["time", `${minutes} min${state?.limits?.time_s ? ` of at most ${(state.limits.time_s / 60).toFixed(0)} min` : ""}`]];
  if (state) pairs.push(["probes", state.probes], ["met the objectives", `${state.low ?? "none yet"} ${state.unit}`], ["did not", `${state.high ?? "none yet"} ${state.unit}`]);
  if (state?.step) pairs.push(["step", state.step]);
  $("about").replaceChildren(...pairs.map(([name, text]) => {
    const pair = document.createElement("div");
    for (const [tag, value] of [["dt", name], ["dd", text]]) pair.append(Object.assign(document.createElement(tag), {textContent: value}));
    return pair;
  }));
  $("log").textContent = status.log;
  document.title = `${running ? "running" : "ended"} · ${status.title} · llama-load`;
}

async function poll() {
  display(await call("/api/experiment"));
}

for (const form of document.querySelectorAll(".start-one")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const {fault} = await call("/api/experiment/start", {kind: form.id, ...Object.fromEntries(new FormData(form))});
      showFault(fault ?? "");
      await poll();
      if (!fault) $("title").focus();
    } catch (error) {
      showFault(error.message);
    }
  });
}
$("stop").addEventListener("click", () => call("/api/experiment/stop", {}).then(poll).catch((error) => showFault(error.message)));

async function main() {
  for (;;) {
    if (!document.hidden) await poll().catch(() => showFault("No answer from llama-load; trying again …"));
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
main();
