// Is this request an event from Zembil? `headers` have lower-case names, `body` is a Buffer of the bytes as they came.
import { createHmac, timingSafeEqual } from "node:crypto";

const isSame = (one, other) => one.length === other.length && timingSafeEqual(one, other);

// Whether the webhook-signature is right, and not older than five minutes: a copy sent later is refused.
export function isGenuine(secret, headers, body, now = Date.now() / 1000) {
  const sentAt = headers["webhook-timestamp"] ?? "";
  const key = Buffer.from(secret.replace("whsec_", ""), "base64");
  const digest = createHmac("sha256", key).update(`${headers["webhook-id"]}.${sentAt}.`).update(body).digest("base64");
  const given = (headers["webhook-signature"] ?? "").split(" ");
  const isRight = given.some((one) => isSame(Buffer.from(one), Buffer.from(`v1,${digest}`)));
  return isRight && Math.abs(now - Number(sentAt)) <= 300;
}

// Whether the zembil-signature is right. It does not cover the time: keep the ids of events and drop repeats.
export function hasZembilSignature(secret, headers, body) {
  const digest = createHmac("sha256", secret).update(body).digest("hex");
  const expected = Buffer.from(`t=${headers["zembil-timestamp"]},v1=${digest}`);
  const given = [headers["zembil-signature"] ?? "", headers["zembil-signature-next"] ?? ""];
  return given.some((one) => isSame(Buffer.from(one), expected));
}
