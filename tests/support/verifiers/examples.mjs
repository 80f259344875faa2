// Reads cases from standard input and answers what examples/webhooks/verify.mjs says of each.
import { readFileSync } from "node:fs";
import { hasZembilSignature, isGenuine } from "../../../examples/webhooks/verify.mjs";

const verdicts = JSON.parse(readFileSync(0, "utf8")).map(({ secret, headers, body, now }) => {
  const bytes = Buffer.from(body, "utf8");
  return [isGenuine(secret, headers, bytes, now ?? undefined), hasZembilSignature(secret, headers, bytes)];
});
process.stdout.write(JSON.stringify(verdicts));
