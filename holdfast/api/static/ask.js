// Questions to the API. The cookie of the login link says who asks.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, { method = "GET", body } = {}) {
  const answer = await fetch(path, {
    method,
    headers: body === undefined ? {} : { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    throw new Refused(answer.status, told.error || `the server answered ${answer.status}`);
  }
  return told;
}
