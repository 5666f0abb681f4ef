// Shows one message: its growing answer, its steps with their attempts, and the workers.

const LOOK_EVERY = 500;
const QUESTION = "How is the harbour today?";

const find = (id) => document.getElementById(id);
let source = null;
let lastKilled = null;

async function request(path, options = {}) {
  const answer = await fetch(path, options);
  const body = await answer.json();
  if (!answer.ok) {
    throw new Error(body.error ?? `status ${answer.status}`);
  }
  return body;
}

const post = (path, body = {}) =>
  request(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

// The id of the message is in the address, so that a reload shows the same answer.
const messageId = () => decodeURIComponent(location.hash.slice(1));

function show(text) {
  find("state").textContent = text;
}

async function ask() {
  const { messageId: id } = await post("/api/message", {
    message: QUESTION,
    sender: "Harbour master",
    conversation: `demo-${Date.now()}`,
  });
  location.hash = encodeURIComponent(id);
}

function follow() {
  source?.close();
  find("answer").textContent = "";
  if (!messageId()) {
    return;
  }
  show("Working …");
  source = new EventSource(`/api/message/${encodeURIComponent(messageId())}/stream`);
  source.addEventListener("response_delta", (event) => {
    find("answer").textContent += JSON.parse(event.data).text;
  });
  source.addEventListener("response_reset", () => {
    find("answer").textContent = "";
  });
  for (const type of ["response_ready", "message_failed"]) {
    source.addEventListener(type, () => {
      source.close();
      show(type === "response_ready" ? "The answer is complete." : "The message failed.");
    });
  }
}

function row(cells, className) {
  const line = document.createElement("tr");
  line.className = className;
  line.append(
    ...cells.map((text) => {
      const cell = document.createElement("td");
      cell.textContent = text;
      return cell;
    }),
  );
  return line;
}

function worker(pid, text, className = "") {
  const item = document.createElement("li");
  item.className = className;
  item.textContent = `process ${pid}: ${text}`;
  return item;
}

async function look() {
  const { running, busy, killed } = await request("/demo/workers");
  find("kill").disabled = busy === null;
  if (lastKilled !== null && busy !== null && busy !== lastKilled) {
    lastKilled = null;
    show(`Process ${busy} has taken over, and goes on where the other one stopped.`);
  }
  find("workers").replaceChildren(
    ...killed.map((pid) => worker(pid, "killed", "killed")),
    ...running
      .filter((pid) => !killed.includes(pid))
      .map((pid) => worker(pid, pid === busy ? "writes the answer" : "waits")),
  );
  if (!messageId()) {
    return;
  }
  const { steps } = await request(`/api/message/${encodeURIComponent(messageId())}`);
  find("steps").replaceChildren(
    ...steps.map(({ key, status, attempt }) =>
      row([key, status, String(attempt)], attempt > 1 ? "later" : ""),
    ),
  );
}

async function kill() {
  const { killed } = await post("/demo/kill");
  lastKilled = killed;
  show(`Process ${killed} was killed. Another one takes over within seconds …`);
}

const showingErrors = (action) => () => action().catch((error) => show(error.message));

find("ask").addEventListener("click", showingErrors(ask));
find("kill").addEventListener("click", showingErrors(kill));
addEventListener("hashchange", follow);
follow();
setInterval(showingErrors(look), LOOK_EVERY);
