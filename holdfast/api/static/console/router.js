// Addresses of the console. A page is a module with `open`; its filters live in the query, so that
// an address can be sent to a colleague.

const PAGES = [
  [/^\/console\/?$/, "overview", []],
  [/^\/console\/messages\/?$/, "messages", []],
  [/^\/console\/messages\/([^/]+)\/?$/, "message", ["id"]],
  [/^\/console\/dead\/?$/, "dead", []],
  [/^\/console\/agents\/?$/, "agents", []],
  [/^\/console\/agents\/([^/]+)\/?$/, "agent", ["agent"]],
  [/^\/console\/teams\/([^/]+)\/?$/, "room", ["team"]],
  [/^\/console\/memory\/?$/, "memory", []],
  [/^\/console\/access\/?$/, "access", []],
];

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function pageAt(pathname) {
  for (const [pattern, name, keys] of PAGES) {
    const match = pattern.exec(pathname);
    if (match) {
      const values = keys.map((key, index) => [key, decode(match[index + 1])]);
      return { name, params: Object.fromEntries(values) };
    }
  }
  return null;
}

// The address of this page with other filters. Empty values are left out.
export function addressWith(changes, from = location) {
  const query = new URLSearchParams(from.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === undefined || value === null || value === "") {
      query.delete(key);
    } else {
      query.set(key, value);
    }
  }
  const text = query.toString();
  return from.pathname + (text ? `?${text}` : "");
}

export function hrefOf(...parts) {
  return `/console/${parts.map(encodeURIComponent).join("/")}`;
}

function isPlainClick(event) {
  return !(event.defaultPrevented || event.button || event.metaKey || event.ctrlKey
    || event.shiftKey || event.altKey);
}

export class Router {
  // `show` gets the page and a signal that is aborted when the person leaves it.
  constructor(show) {
    this.show = show;
    this.leaving = new AbortController();
  }

  start() {
    document.addEventListener("click", (event) => this.#onClick(event));
    window.addEventListener("popstate", () => this.#open());
    this.#open();
  }

  go(address) {
    history.pushState(null, "", address);
    window.scrollTo(0, 0);
    this.#open();
  }

  // Open the current page anew.
  reload() {
    this.#open();
  }

  // Note filters in the address bar. The page shows them by itself.
  note(changes) {
    history.replaceState(history.state, "", addressWith(changes));
  }

  #onClick(event) {
    const link = event.target.closest?.("a[href]");
    if (!link || !isPlainClick(event) || link.target || link.hasAttribute("download")) {
      return;
    }
    const url = new URL(link.href);
    if (link.getAttribute("href").startsWith("#")) {
      event.preventDefault();
      document.querySelector(link.hash)?.focus();
    } else if (url.origin === location.origin && pageAt(url.pathname)) {
      event.preventDefault();
      this.go(url.pathname + url.search);
    }
  }

  #open() {
    this.leaving.abort();
    this.leaving = new AbortController();
    this.show(pageAt(location.pathname), this.leaving.signal);
  }
}
