// graphile-worker: the same roles, events and handler as the programs in Python.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const { createRequire } = require("node:module");

const load = createRequire(process.env.BENCH_MODULES);
const { run, makeWorkerUtils, runMigrations, Logger } = load("graphile-worker");
const { Pool } = load("pg");

const CHANNELS = 2000;
const STEP = 500;
const MENTION = JSON.parse(process.env.BENCH_MENTION);
const PROGRESS = process.env.BENCH_PROGRESS;
const quiet = new Logger(() => () => undefined);
const SETTINGS = {
  default: {},
  best: {
    concurrentJobs: 24,
    maxPoolSize: 10,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
  probe: { concurrentJobs: 10, pollInterval: 200 },
};

function numbered(number) {
  const channel = `C${String(number % CHANNELS).padStart(4, "0")}`;
  const ts = `${1_700_000_000 + number}.000100`;
  return { payload: { ...MENTION, channel, ts, event_ts: ts } };
}

function specOf(event) {
  const options = event.strict ? { queueName: event.lane, jobKey: event.key } : {};
  return { identifier: "handle", payload: event.payload, ...options };
}

async function put(utils, events) {
  if (events.length > 1) {
    await utils.addJobs(events.map(specOf));
    return;
  }
  const { identifier, payload, ...options } = specOf(events[0]);
  await utils.addJob(identifier, payload, options);
}

async function serve(url, connections) {
  const pgPool = new Pool({ connectionString: url, max: connections });
  pgPool.on("error", () => undefined);
  pgPool.on("connect", (one) => one.on("error", () => undefined));
  const utils = await makeWorkerUtils({ pgPool, logger: quiet });
  console.log("the client is ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(utils, JSON.parse(line))));
  }
  await utils.release();
  await pgPool.end();
}

async function answer(utils, command) {
  let shares = [[[{ ...command.event, strict: true }]]];
  if (!command.event) {
    const { first, count, tasks, batch } = command;
    const events = Array.from({ length: count }, (_, nth) => numbered(first + nth));
    const parts = [];
    for (let start = 0; start < count; start += batch) {
      parts.push(events.slice(start, start + batch));
    }
    shares = Array.from({ length: tasks }, (_, nth) =>
      parts.filter((_part, place) => place % tasks === nth));
  }
  const at = Date.now() / 1000;
  const begun = process.hrtime.bigint();
  await Promise.all(shares.map(async (share) => {
    for (const part of share) await put(utils, part);
  }));
  return { at, seconds: Number(process.hrtime.bigint() - begun) / 1e9 };
}

let handled = 0;

function append(path, note) {
  fs.appendFileSync(path, `${JSON.stringify(note)}\n`);
}

async function handle(payload, helpers) {
  const { channel, text, type } = payload;
  const reads = text.split(/\s/, 1)[0].startsWith("<@") && channel.startsWith("C");
  if (type !== "app_mention" || !reads) throw new Error("not a mention");
  if (payload.journal) await follow(payload, helpers);
  handled += 1;
  if (PROGRESS && (handled === 1 || handled % STEP === 0)) {
    append(PROGRESS, { handled, at: Date.now() / 1000 });
  }
}

async function follow(payload, helpers) {
  const { journal, name, does } = payload;
  const attempt = 1 + count(journal, name, "begin");
  const note = { name, attempt, process: process.pid };
  append(journal, { ...note, what: "begin", at: Date.now() / 1000 });
  if (does === "hangs first" && attempt === 1) await new Promise(() => undefined);
  if (does === "fails first" && attempt === 1) throw new Error("the first attempt fails");
  if (does === "waits") {
    while (!fs.existsSync(`${payload.gate}-${attempt}`)) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  if (does === "adds and dies first") {
    const next = `${name}-next`;
    if (attempt > 1) await waitForEnd(journal, next);
    const event = { ...MENTION, journal, name: next, does: "notes" };
    await helpers.addJob("handle", event);
    if (attempt === 1) process.kill(process.pid, "SIGKILL");
  }
  append(journal, { ...note, what: "end", at: Date.now() / 1000 });
}

// If the first attempt stored its event, let it end before it is added again.
async function waitForEnd(journal, name) {
  for (let nth = 0; nth < 100 && count(journal, name, "end") === 0; nth += 1) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function count(journal, name, what) {
  if (!fs.existsSync(journal)) return 0;
  const lines = fs.readFileSync(journal, "utf8").split("\n").filter(Boolean);
  const notes = lines.map((line) => JSON.parse(line));
  return notes.filter((note) => note.name === name && note.what === what).length;
}

async function work(url, mode) {
  const runner = await run({
    connectionString: url,
    taskList: { handle },
    preset: { worker: { ...SETTINGS[mode], logger: quiet } },
  });
  console.log("the worker is ready");
  await runner.promise;
}

async function main([role, url, rest]) {
  if (role === "install") await runMigrations({ connectionString: url, logger: quiet });
  else if (role === "client") await serve(url, Number(rest));
  else await work(url, rest);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
