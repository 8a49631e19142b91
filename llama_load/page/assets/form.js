// The form of a start: filled, read, and with the faults of an answer at their fields. All text goes in as text, never as HTML.
"use strict";
class StartForm {
  constructor(form, refused) {
    this.form = form;
    this.refused = refused;
    this.defaults = {};
    this.kind = document.getElementById("load-kind");
    const update = () => this.update();
    form.addEventListener("input", update);
    form.addEventListener("change", update);
  }

  field(name) {
    return this.form.querySelector(`.field[data-name="${CSS.escape(name)}"]`);
  }

  fill(values) {
    for (const [name, value] of Object.entries(values)) {
      const input = this.form.elements[name];
      if (!input) continue;
      if (input.type === "checkbox") input.checked = value;
      else input.value = Array.isArray(value) ? value.join("\n") : value;
      if (input.tagName === "TEXTAREA") input.rows = Math.max(2, input.value.split("\n").length);
    }
    if (!this.kind.disabled) {
      const rate = values.request_rate ?? "";
      this.kind.value = values.stages ? "stages" : rate && rate !== "inf" ? "rate" : "users";
    }
    this.update();
  }

  static LOADS = {num_users: "users", request_rate: "rate", stages: "stages"};

  // Whether a field belongs to the chosen workload and load.
  applies(name) {
    const choices = this.field(name)?.dataset.for;
    const workload = this.form.elements.workload?.value ?? "";
    if (choices && !JSON.parse(choices).includes(workload)) return false;
    const load = StartForm.LOADS[name];
    return !load || this.kind.disabled || load === this.kind.value;
  }

  update() {
    for (const field of this.form.querySelectorAll(".field[data-name]")) field.hidden = !this.applies(field.dataset.name);
    const {num_prompts: count, run_time: time, stages, trace} = this.form.elements;
    const ends = [count, time, trace].some((input) => input?.value.trim()) || (this.kind.value === "stages" && stages.value.trim());
    document.getElementById("endless").hidden = Boolean(ends);
    for (const group of this.form.querySelectorAll("details.more")) {
      const inputs = [...group.querySelectorAll(".field:not([hidden]) [name]")];
      const set = inputs.filter((input) => input.type === "checkbox" ? input.checked : input.value !== (this.defaults[input.name] ?? "")).length;
      group.hidden = !inputs.length;
      group.querySelector("[data-count]").textContent = set ? `${set} set` : "";
    }
  }

  // What is sent: fields of other workloads are left out, those of other loads are empty.
  typed() {
    const found = {};
    for (const input of this.form.elements) {
      if (!input.name) continue;
      const empty = !this.applies(input.name);
      if (empty && !StartForm.LOADS[input.name]) continue;
      found[input.name] = input.type === "checkbox" ? input.checked : empty ? "" : input.dataset.kind === "lines" ? input.value.split("\n") : input.value;
    }
    return found;
  }

  // Every fault at its field, the first one focused; what belongs to no field in the banner.
  showFaults(faults, what) {
    for (const field of this.form.querySelectorAll(".field.wrong")) {
      field.classList.remove("wrong");
      field.querySelector(".fault").hidden = true;
      field.querySelector(".fault").textContent = "";
      field.querySelector("[name]").removeAttribute("aria-invalid");
    }
    const rest = [];
    let first = null;
    for (const fault of faults) {
      const fields = fault.fields.map((name) => this.field(name)).filter((field) => field && !field.hidden);
      if (!fields.length) rest.push(fault.text);
      fields.forEach((field, place) => {
        field.classList.add("wrong");
        field.querySelector("[name]").setAttribute("aria-invalid", "true");
        if (place) return;
        const text = field.querySelector(".fault");
        text.textContent = (text.textContent ? text.textContent + "\n" : "") + fault.text;
        text.hidden = false;
        for (let parent = field.parentElement; parent; parent = parent.parentElement) if (parent.tagName === "DETAILS") parent.open = true;
        if (!first || field.compareDocumentPosition(first) & Node.DOCUMENT_POSITION_FOLLOWING) first = field;
      });
    }
    const at = faults.length - rest.length;
    if (at) rest.unshift(`${what}: ${at === 1 ? "one entry needs" : `${at} entries need`} a change, see below.`);
    this.refused.textContent = rest.join("\n");
    this.refused.hidden = !rest.length;
    if (first) first.querySelector("[name]").focus();
    else if (rest.length) this.refused.focus();
  }

  preset(button) {
    const values = JSON.parse(button.dataset.values);
    this.fill({request_rate: this.defaults.request_rate ?? "", stages: "", run_time: "", ...values, workload: button.dataset.workload});
    this.form.elements.host.focus();
  }

  forgetKeys() {
    for (const input of this.form.querySelectorAll("[type=password], .kind-secret-lines textarea")) input.value = "";
  }
}
