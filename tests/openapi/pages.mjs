// Look at each page in each scheme and width: axe's findings, what overflows, and what the browser complains about.
// node pages.mjs BROWSER SCREENSHOTS URL…; packages are those of $OPENAPI_TOOLS; prints JSON.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.OPENAPI_TOOLS}/package.json`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [executablePath, screenshots, ...urls] = process.argv.slice(2);
const args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"];

const browser = await chromium.launch({ executablePath, args });
const looks = [];
for (const colorScheme of ["light", "dark"]) {
  for (const width of [390, 1280]) {
    const context = await browser.newContext({ colorScheme, viewport: { width, height: 900 } });
    for (const url of urls) looks.push(await look(context, url, colorScheme, width));
    await context.close();
  }
}
await browser.close();
console.log(JSON.stringify(looks));

async function look(context, url, scheme, width) {
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  const answer = await page.goto(url, { waitUntil: "load" });
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document));
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  const paper = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const name = new URL(url).pathname.replaceAll("/", "_");
  await page.screenshot({ path: `${screenshots}/page${name}-${scheme}-${width}.png` });
  await page.close();
  const violations = found.violations.map(({ id, impact, nodes }) => ({ id, impact, nodes: nodes.slice(0, 3).map((at) => at.html) }));
  return { url, scheme, width, status: answer.status(), type: answer.headers()["content-type"], violations, overflow, paper, complaints };
}
