// The list of runs: searched, sorted, compared; runs are deleted after a question.
"use strict";
const root = document.body.dataset.root;
const form = document.getElementById("runs");

if (form) {
  const rows = [...form.querySelectorAll("tbody tr")];
  const update = () => {
    const count = form.querySelectorAll("input:checked").length;
    document.getElementById("compare").disabled = count < 2;
    document.getElementById("chosen").textContent = count < 2 ? "Choose two or more runs." : `${count} runs chosen.`;
  };
  form.addEventListener("change", update);
  update();

  const search = document.getElementById("search");
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    document.getElementById("none").hidden = rows.some((row) => !row.hidden);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault();
  });

  for (const button of form.querySelectorAll(".sort")) {
    const head = button.parentElement;
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of form.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[head.cellIndex].dataset.sort ?? row.cells[head.cellIndex].textContent.trim();
      rows.sort((one, other) => {
        const [first, second] = [value(one), value(other)];
        if (!first || !second) return Boolean(second) - Boolean(first);  // what is not known is last
        const difference = Number(first) - Number(second);  // 1.25 is less than 1.3; of texts it is NaN
        return (up ? 1 : -1) * (Number.isNaN(difference) ? first.localeCompare(second, "en", {numeric: true}) : difference);
      });
      form.querySelector("tbody").append(...rows);
    });
  }
}

for (const button of document.querySelectorAll(".delete")) {
  button.addEventListener("click", async () => {
    const run = button.dataset.run;
    if (!confirm(`Delete ${run} with all its files?`)) return;
    const place = document.getElementById("not-deleted");
    place.hidden = true;
    try {
      const body = JSON.stringify({run, confirm: run});
      const answer = await fetch(`${root}/api/delete`, {method: "POST", headers: {"Content-Type": "application/json"}, credentials: "same-origin", body});
      const text = await answer.text();
      const fault = answer.status === 200 || answer.status === 422 ? JSON.parse(text).fault : text;
      if (!fault) return location.assign(`${root}/runs`);
      place.textContent = `${run} was not deleted: ${fault}`;
    } catch (error) {
      place.textContent = `${run} was not deleted: ${error.message}`;
    }
    place.hidden = false;
    place.scrollIntoView({block: "nearest"});
  });
}
