// Requests to the API, authenticated by the session cookie.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// `keepalive` lets a request outlive its page.
async function request(path, { method = "GET", body, keepalive } = {}) {
  const answer = await fetch(path, {
    method,
    keepalive,
    headers: body === undefined ? {} : { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    throw new Refused(answer.status, content.error || `the server answered ${answer.status}`);
  }
  return { content, headers: answer.headers };
}

export async function ask(path, options) {
  return (await request(path, options)).content;
}

// One page of a list, and the id to go on with, if there is more.
export async function askPage(path) {
  const { content, headers } = await request(path);
  return {
    rows: content, next: headers.get("x-next-before-id") ?? headers.get("x-next-since-id"),
  };
}

// A whole list, page by page: the header `Link` of a page names the next one.
export async function askAll(path) {
  const rows = [];
  for (let next = path; next;) {
    const { content, headers } = await request(next);
    rows.push(...content);
    next = /^<([^>]*)>; rel="next"$/.exec(headers.get("link") ?? "")?.[1];
  }
  return rows;
}
