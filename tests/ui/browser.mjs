// Drives the report in a real Chromium. Prints one JSON object. Usage: node browser.mjs REPORT.html OUT_DIR NODE_MODULES
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { readFileSync } from "node:fs";

const [report, out, modules] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${modules}/x.js`));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const url = pathToFileURL(report).href;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
const console_ = [], requests = [], violations = {};
async function open(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) console_.push(message.text()); });
  page.on("pageerror", (error) => console_.push(String(error)));
  page.on("request", (request) => { if (request.url() !== url) requests.push(request.url()); });
  await page.goto(url);
  return [context, page];
}

// As a reader: folding by mouse and by keyboard, a link into a folded row.
let [context, page] = await open({ viewport: { width: 1100, height: 900 } });
const folds = await page.locator("details").count();
const first = page.locator("details").first();
const before = await first.evaluate((d) => d.open);
await first.locator("summary").focus();
await page.keyboard.press("Enter");
const keyboard = await first.evaluate((d) => d.open);
await page.keyboard.press("Space");
const again = await first.evaluate((d) => d.open);
await page.locator("#unfold").press("Enter");
const unfolded = await page.locator("details[open]").count();
await page.locator("#unfold").press("Enter");
const folded = await page.locator("details[open]").count();
await page.locator(".strip a").nth(1).press("Enter");
await page.waitForFunction(() => document.getElementById("i2").open);
const jumped = await page.locator("#i2").evaluate((d) => d.open && d.contains(document.activeElement));
await page.goto(url);
await page.screenshot({ path: `${out}/report.png` });
await page.keyboard.press("Tab");
const skip = await page.evaluate(() => document.activeElement.textContent);
await context.close();

// As a phone and in the dark: nothing wider than the screen.
[context, page] = await open({ viewport: { width: 360, height: 740 }, colorScheme: "dark" });
const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
await page.screenshot({ path: `${out}/report-phone-dark.png` });
await context.close();

// For the printer every fold is open.
[context, page] = await open({ viewport: { width: 1100, height: 900 } });
await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
const printed = await page.locator("details[open]").count();
await context.close();

// axe needs to be injected, which the page's own policy forbids: in a context of its own.
for (const colorScheme of ["light", "dark"]) {
  [context, page] = await open({ viewport: { width: 1100, height: 900 }, colorScheme, bypassCSP: true });
  await page.evaluate(axe);
  const result = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  violations[colorScheme] = result.violations.map((v) => ({ id: v.id, impact: v.impact, nodes: v.nodes.length, first: v.nodes[0].html }));
  await context.close();
}
await browser.close();
process.stdout.write(JSON.stringify({
  console: console_, requests, violations, folds, before, keyboard, again, unfolded, folded, jumped, skip, overflow, background, printed,
}));
