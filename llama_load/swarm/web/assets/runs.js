// The list of runs: two or more can be compared.
"use strict";
const form = document.getElementById("runs");
if (form) {
  const update = () => {
    const count = form.querySelectorAll("input:checked").length;
    document.getElementById("compare").disabled = count < 2;
    document.getElementById("chosen").textContent = count < 2 ? "Choose two or more runs." : `${count} runs chosen.`;
  };
  form.addEventListener("change", update);
  update();
}
