// Shows /openapi.json. Keys are typed by the reader, kept by the page until it is left, and sent to our own API only:
// the page's policy allows requests to this origin alone. Live keys are not taken at all: a reader who tries things out
// moves no real money.
"use strict";
const LIVE_KEY = /sk_live_/i;
const warning = document.getElementById("live-key");

function warn() {
  warning.textContent = warning.dataset.sentence;
  warning.hidden = false;
}

function refuseLiveKey(event) {
  const field = event.target;
  if (!(field instanceof HTMLInputElement) || !LIVE_KEY.test(field.value)) return;
  // The page's own script keeps what is typed; it hears of a change only through the field's own setter and an event.
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, "");
  field.dispatchEvent(new Event("input", { bubbles: true }));
  warn();
}
document.addEventListener("input", refuseLiveKey);

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  displayOperationId: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
  requestInterceptor: (request) => {
    if (!LIVE_KEY.test(JSON.stringify(request.headers ?? {}))) return request;
    warn();
    throw new Error(warning.dataset.sentence);
  },
});
