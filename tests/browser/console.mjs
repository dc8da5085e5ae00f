// Look at the console as people do: each page in each scheme and width, by keyboard, and without scripts.
// node console.mjs < plan.json; packages are those of $OPENAPI_TOOLS; prints JSON.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.OPENAPI_TOOLS}/package.json`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const plan = JSON.parse(readFileSync(0, "utf8"));
const args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"];

const browser = await chromium.launch({ executablePath: plan.browser, args });
const seen = { looks: [], walks: [], menu: null, streamed: null, plain: [] };
for (const { house, link, paths, screens } of plan.houses) {
  const state = link ? await signIn(link) : undefined;
  for (const [colorScheme, width] of screens) {
    const context = await browser.newContext({ colorScheme, viewport: { width, height: 900 }, storageState: state });
    await someAtOnce(paths, async (path) => seen.looks.push(await look(context, house, path, colorScheme, width)));
    await context.close();
  }
  if (house === "many") await useIt(state);
}
seen.plain = await withoutScripts(plan.plain);
await browser.close();
console.log(JSON.stringify(seen));

async function someAtOnce(items, work) {
  const left = [...items];
  const next = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item);
  };
  await Promise.all([next(), next(), next()]);
}

async function signIn(link) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(link);
  if (page.url().includes("#")) throw new Error("the code stays in the address");
  await page.click("#sign-in");
  await page.waitForURL(/\/console(\/organizations)?$/);
  const state = await context.storageState();
  await context.close();
  return state;
}

function listen(page) {
  const complaints = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", (dialog) => complaints.push(`dialog: ${dialog.message()}`) && dialog.dismiss());
  return complaints;
}

async function look(context, house, path, scheme, width) {
  const page = await context.newPage();
  const complaints = listen(page);
  const answer = await page.goto(plan.url + path, { waitUntil: "load" });
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document));
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  await keep(page, `${house}${named(path)}-${scheme}-${width}`, width > 400);
  await page.close();
  const violations = found.violations.map(({ id, nodes }) => ({ id, nodes: nodes.slice(0, 3).map((at) => at.html.slice(0, 300)) }));
  return { house, path, scheme, width, status: answer.status(), violations, overflow, complaints };
}

async function keep(page, name, fullPage) {
  await page.screenshot({ path: `${plan.screenshots}/${name}.png`, fullPage });
}

// An id says nothing in the name of a picture, and is another one each time.
function named(path) {
  return path.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "id").replaceAll(/[/?=]/g, "_");
}

async function useIt(state) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, storageState: state });
  const page = await context.newPage();
  for (const path of plan.walks) seen.walks.push(await walk(page, path));
  await page.goto(`${plan.url}/console/models`);
  await page.fill("#message", "Say hello to <b>everybody</b>");
  await page.click("#send");
  await page.waitForSelector("#bill .st.ok, #bill .st.bad", { timeout: 30_000 });
  seen.streamed = {
    reply: await page.textContent("#reply"),
    bill: await page.textContent("#bill"),
    markup: await page.locator("#reply b").count(),
  };
  await page.setViewportSize({ width: 390, height: 800 });
  await page.goto(`${plan.url}/console`);
  const button = page.locator("button[popovertarget=nav]");
  await button.focus();
  await page.keyboard.press("Enter");
  const opened = await page.locator("#nav").isVisible();
  await page.keyboard.press("Escape");
  const closed = !(await page.locator("#nav").isVisible());
  const returned = await button.evaluate((at) => at === document.activeElement);
  seen.menu = { opened, closed, returned };
  await context.close();
}

async function walk(page, path) {
  await page.goto(plan.url + path, { waitUntil: "load" });
  const marked = await page.evaluate(() => {
    const wanted = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
    const visible = [...document.querySelectorAll(wanted)].filter((at) => at.checkVisibility() && !at.disabled);
    visible.forEach((at, number) => (at.dataset.walk = number));
    return visible.map((at) => at.outerHTML.slice(0, 160));
  });
  const reached = new Set();
  const faint = [];
  for (let press = 0; press < marked.length + 20; press++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const here = document.activeElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(here);
      return { number: here.dataset.walk, outline: outlineStyle === "none" ? 0 : parseFloat(outlineWidth) };
    });
    if (at.number === undefined) continue;
    reached.add(Number(at.number));
    if (at.outline < 2) faint.push(marked[at.number]);
  }
  return { path, faint, missed: marked.filter((_, number) => !reached.has(number)) };
}

async function withoutScripts({ code, key }) {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  const complaints = listen(page);
  const done = [];
  await page.goto(`${plan.url}/console/in`);
  await page.fill("#code", code);
  await page.click("#sign-in");
  done.push(new URL(page.url()).pathname);
  await page.goto(`${plan.url}/console/models`);
  await page.fill("#message", "Say hello");
  await page.click("#send");
  done.push(await page.textContent("#reply"), await page.textContent("#bill"));
  await page.goto(`${plan.url}/console/keys`);
  await page.fill("#kn", key);
  await page.click("#new button");
  done.push((await page.textContent("#secret")).slice(0, 4));
  await page.goto(`${plan.url}/console/keys`);
  await page.locator("tr", { hasText: key }).getByRole("link", { name: "Revoke" }).click();
  await page.fill("#sure", key);
  await page.click("button.danger");
  done.push(new URL(page.url()).pathname);
  await page.click("text=Sign out");
  done.push(new URL(page.url()).pathname);
  await context.close();
  return { done, complaints };
}
