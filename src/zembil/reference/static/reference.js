// Shows /openapi.json. Keys are typed by the reader, kept by the page until it is left, and sent to our own API only:
// the page's policy allows requests to this origin alone.
"use strict";
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
});
