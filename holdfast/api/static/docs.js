// Shows the OpenAPI document: every route with its role, what it takes and what it answers.

import { byId, codeElements, element, fold } from "./dom.js";

const ROLES = { read: "", send: "info", admin: "wait" };

const json = (value) => element("pre", { tabindex: "0" }, JSON.stringify(value, null, 2));

const row = (name, ...texts) => element("tr", {}, element("th", { scope: "row" },
  element("code", {}, name)),
...texts.map((text) => element("td", {}, ...codeElements(text))));

const table = (label, rows) => (rows.length
  ? [element("table", { "aria-label": label }, element("tbody", {}, ...rows))] : []);

const typeName = (schema = {}) => {
  const types = (schema.anyOf ?? []).map((one) => one.type);
  return schema.type ?? types.filter((type) => type && type !== "null").join(" or ");
};

const required = (isRequired) => (isRequired ? ", required" : "");

const parameters = (described) => table("Parameters", described.map((one) => row(
  one.name,
  `${one.in}, ${typeName(one.schema)}${required(one.required)}`,
  one.description ?? one.schema?.description ?? "",
)));

const fields = (schema) => {
  const properties = Object.entries(schema?.properties ?? {});
  return table("Fields", properties.map(([name, one]) => row(
    name,
    `${typeName(one)}${required(schema.required?.includes(name))}`,
    one.description ?? "",
  )));
};

const body = (requestBody) => {
  const content = requestBody?.content?.["application/json"];
  return content
    ? [element("h4", {}, "Takes"), json(content.example), ...fields(content.schema)] : [];
};

const answers = (responses) => {
  const example = responses["200"]?.content?.["application/json"]?.example;
  const others = Object.entries(responses).filter(([status]) => status !== "200");
  return [
    ...(example === undefined ? [] : [element("h4", {}, "Answers"), json(example)]),
    element("details", {}, fold("Refusals"),
      ...table("Refusals", others.map(([status, one]) => row(status, one.description ?? "")))),
  ];
};

// The description says more than the summary, which stands in the title.
const route = (path, method, operation) => {
  const role = operation["x-role"] ?? "open";
  return element("section", { class: "card", id: operation.operationId },
    element("h3", { class: "route-head" },
      element("span", { class: `method ${method}` }, method.toUpperCase()),
      element("code", {}, path),
      element("span", { class: `badge ${ROLES[role] ?? "good"}` }, role)),
    element("p", {}, ...codeElements(operation.description || `${operation.summary}.`)),
    ...parameters(operation.parameters ?? []),
    ...body(operation.requestBody),
    ...answers(operation.responses));
};

const show = (description) => {
  const { summary, version } = description.info;
  byId("summary").textContent = `${summary}, version ${version}`;
  const groups = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), route(path, method, operation)]);
    }
  }
  for (const [tag, routes] of groups) {
    const id = `tag-${tag.replaceAll(" ", "-")}`;
    byId("index").append(element("a", { href: `#${id}` }, element("span", {}, tag),
      element("span", { class: "number" }, String(routes.length))));
    byId("routes").append(element("h2", { id }, tag), ...routes);
  }
};

const answer = await fetch("/openapi.json");
if (answer.ok) {
  show(await answer.json());
} else {
  byId("summary").textContent = (await answer.json()).error;
}
