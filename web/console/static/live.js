/* What pages do besides, where scripts run: nothing here is needed. */
"use strict";

// Parts with hx-trigger="tick from:body" are asked for anew, but not by tabs that nobody sees.
setInterval(() => {
  if (document.visibilityState === "visible") document.body.dispatchEvent(new Event("tick"));
}, 2000);

// The code of a link stands behind the #, which no server is sent. It is put into the form and out of the address.
const code = document.getElementById("code");
if (code && location.hash.startsWith("#svl_")) {
  code.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  document.getElementById("sign-in").focus();
}

for (const button of document.querySelectorAll("button[data-copies]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
    button.textContent = "Copied";
  });
}
