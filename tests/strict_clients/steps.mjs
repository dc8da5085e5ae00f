// What every client is asked to do, and how a client for Node reports what came of it: `steps.py` for JavaScript.
// node with_….mjs URL API_KEY MODEL DIALECT; packages are those of $STRICT_CLIENTS.
import { createRequire } from "node:module";
import net from "node:net";
import { pathToFileURL } from "node:url";

export const [url, apiKey, model, dialect] = process.argv.slice(2);
export const HELLO = "hello there";
export const TOOL = '!tool weather {"city": "Bergen"}';
export const STRUCTURED = '!json {"name": "Bergen", "people": 290000}';
export const UNKNOWN = "scripted/nothing";
export const MAX_TOKENS = 100;

const require = createRequire(`${process.env.STRICT_CLIENTS}/package.json`);
export const load = (name) => import(pathToFileURL(require.resolve(name)));
export const weather = ({ city }) => `rain in ${city}`;

export async function refused(ask) {
  try {
    await ask();
  } catch (error) {
    return [error.constructor.name, error.status ?? error.statusCode ?? null];
  }
  return "not refused";
}

export async function report(steps) {
  const results = {};
  for (const [name, step] of Object.entries(steps)) {
    try {
      results[name] = await step();
    } catch (error) {
      results[name] = String(error.stack ?? error);
    }
  }
  console.log(JSON.stringify(results));
}

const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...given) {
  const [{ host }] = Array.isArray(given[0]) ? given[0] : given;
  if (host !== "127.0.0.1") throw new Error(`no test asks ${host}`);
  return connect.apply(this, given);
};
