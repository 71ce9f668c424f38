// Verifies webhooks with the npm package: reads a JSON array of {secret, headers, body, sign} from standard input.
// Prints, as a JSON array, null for each that it accepts, else the error's text; with `sign` ([id, seconds]) the
// signature that it would make.
import { readFileSync } from "node:fs";
import { Webhook } from "standardwebhooks";

function told({ secret, headers, body, sign }) {
  const webhook = new Webhook(secret);
  if (sign) return webhook.sign(sign[0], new Date(sign[1] * 1000), body);
  try {
    webhook.verify(body, headers);
    return null;
  } catch (fault) {
    return fault.message;
  }
}

console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(told)));
