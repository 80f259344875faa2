// What pages gain where scripts run; nothing needs it.
"use strict";

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector(".code").textContent);
    button.textContent = "Copied";
  });
}

// A link that a person opened signs in by itself; a page that is only prepared in advance does not.
for (const form of document.querySelectorAll("form[data-send]")) {
  const send = () => form.requestSubmit();
  if (document.prerendering) document.addEventListener("prerenderingchange", send, { once: true });
  else send();
}
