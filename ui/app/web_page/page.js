// What textual.js leaves out: keys come to the screen without a click, and it can copy without https.
"use strict";

function takeKeys() {
  const last = document.body.classList.contains("-closed");
  document.querySelector(last ? ".closed a" : ".xterm-helper-textarea")?.focus({ preventScroll: true });
}

async function copyFromField(text) {
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  takeKeys();
}

// A browser offers its clipboard to https and to this machine alone.
if (!navigator.clipboard) {
  const instead = { writeText: copyFromField, readText: async () => "" };
  Object.defineProperty(navigator, "clipboard", { value: instead });
}

window.addEventListener("load", () => {
  takeKeys();
  document.addEventListener("mouseup", takeKeys);
  new MutationObserver(takeKeys).observe(document.body, { attributeFilter: ["class"] });
});
