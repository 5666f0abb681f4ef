// Shows the OpenAPI document: every route with its role, what it takes and what it answers.

import { written } from "./view.js";

const element = (name, text = "", ...children) => {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...children);
  return made;
};

const json = (value) => element("pre", JSON.stringify(value, null, 2));

const row = (...cells) => element("tr", "", ...cells.map((cell) => element("td", "", ...written(cell))));

const kind = (schema = {}) =>
  schema.type ?? (schema.anyOf ?? []).map((one) => one.type).filter((one) => one && one !== "null").join(" or ");

const parameters = (given) => {
  const rows = given.map((one) => row(one.name, `${one.in}, ${kind(one.schema)}${one.required ? ", required" : ""}`,
    one.description ?? one.schema?.description ?? ""));
  return rows.length ? [element("table", "", ...rows)] : [];
};

const fields = (schema) => Object.entries(schema?.properties ?? {}).map(([name, one]) =>
  row(name, `${kind(one)}${schema.required?.includes(name) ? ", required" : ""}`, one.description ?? ""));

const body = (given) => {
  const content = given?.content?.["application/json"];
  return content ? [element("p", "Takes"), json(content.example), element("table", "", ...fields(content.schema))] : [];
};

const answers = (responses) => {
  const example = responses["200"]?.content?.["application/json"]?.example;
  const others = Object.entries(responses).filter(([status]) => status !== "200");
  return [
    ...(example === undefined ? [] : [element("p", "Answers"), json(example)]),
    element("details", "", element("summary", "Refusals"),
      element("table", "", ...others.map(([status, one]) => row(status, one.description ?? "")))),
  ];
};

const route = (path, method, operation) => {
  const role = element("span", operation["x-role"] ?? "open");
  role.className = "role";
  const title = element("h3", "", element("code", `${method.toUpperCase()} ${path}`), " ", role);
  const made = element("section", "", title, element("p", "", ...written(`${operation.summary}. ${operation.description ?? ""}`)),
    ...parameters(operation.parameters ?? []), ...body(operation.requestBody), ...answers(operation.responses));
  made.id = operation.operationId;
  return made;
};

const show = (description) => {
  document.getElementById("summary").textContent = `${description.info.summary}, version ${description.info.version}`;
  const groups = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), route(path, method, operation)]);
    }
  }
  for (const [tag, routes] of groups) {
    const title = element("h2", tag);
    title.id = `tag-${tag.replaceAll(" ", "-")}`;
    const link = element("a", tag);
    link.href = `#${title.id}`;
    document.getElementById("index").append(link);
    document.getElementById("routes").append(title, ...routes);
  }
};

const answer = await fetch("/openapi.json");
if (answer.ok) {
  show(await answer.json());
} else {
  document.getElementById("summary").textContent = (await answer.json()).error;
}
