// Reads cases from standard input and answers what the npm package standardwebhooks says of each.
const { readFileSync } = require("node:fs");
const { Webhook } = require("standardwebhooks");

const clock = Date.now;
const verdicts = JSON.parse(readFileSync(0, "utf8")).map(({ secret, headers, body, now }) => {
  Date.now = now === null ? clock : () => now * 1000;
  try {
    new Webhook(secret).verify(body, headers, { jsonParse: false });
    return [true, null];
  } catch {
    return [false, null];
  }
});
process.stdout.write(JSON.stringify(verdicts));
