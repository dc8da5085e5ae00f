// What a newcomer does in the browser after `make up`: follows the link, shares a file, asks a model, talks to an agent.
// node first_minutes.mjs < plan.json; packages are those of $OPENAPI_TOOLS; prints JSON.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.OPENAPI_TOOLS}/package.json`);
const { chromium } = require("playwright-core");
const plan = JSON.parse(readFileSync(0, "utf8"));
const args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"];

const browser = await chromium.launch({ executablePath: plan.browser, args });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
page.setDefaultTimeout(60_000);
const done = {};

await page.goto(plan.link);
await page.click("#sign-in");
await page.waitForURL("**/console");
done.title = await page.title();

await page.click("nav >> text=Files");
await page.getByRole("link", { name: plan.file }).click();
await page.getByRole("button", { name: "Share" }).click();
const shared = await page.textContent("#secret");
const outside = await browser.newContext(); // nobody: the link alone opens it
done.shared = await (await outside.request.get(shared)).text();

await page.click("text=Back to the file");
await page.click("nav >> text=Models");
await page.fill("#message", plan.question);
await page.click("#send");
await page.waitForSelector("#bill .st.ok, #bill .st.bad");
done.reply = await page.textContent("#reply");
done.bill = await page.textContent("#bill");

await page.click("nav >> text=Agents");
await page.locator("main tbody a").first().click();
await page.fill("#message", plan.greeting);
await page.getByRole("button", { name: "Send" }).click();
await page.waitForURL("**/console/tasks/*");
await page.waitForSelector("#line .facts .st.ok, #line .facts .st.bad"); // the page goes on by itself
done.task = await page.textContent("#line");

await browser.close();
console.log(JSON.stringify(done));
