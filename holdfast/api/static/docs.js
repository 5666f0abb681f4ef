// Shows the OpenAPI document: every route with its role, what it takes and what it answers.

import { codeElements } from "./dom.js";

const element = (name, text = "", ...children) => {
  const node = document.createElement(name);
  node.textContent = text;
  node.append(...children);
  return node;
};

const json = (value) => element("pre", JSON.stringify(value, null, 2));

const row = (...texts) => {
  const cells = texts.map((text) => element("td", "", ...codeElements(text)));
  return element("tr", "", ...cells);
};

const typeName = (schema = {}) => {
  const types = (schema.anyOf ?? []).map((one) => one.type);
  return schema.type ?? types.filter((type) => type && type !== "null").join(" or ");
};

const required = (isRequired) => (isRequired ? ", required" : "");

const parameters = (described) => {
  const rows = described.map((one) => row(
    one.name,
    `${one.in}, ${typeName(one.schema)}${required(one.required)}`,
    one.description ?? one.schema?.description ?? "",
  ));
  return rows.length ? [element("table", "", ...rows)] : [];
};

const fields = (schema) => Object.entries(schema?.properties ?? {}).map(([name, one]) => row(
  name,
  `${typeName(one)}${required(schema.required?.includes(name))}`,
  one.description ?? "",
));

const body = (requestBody) => {
  const content = requestBody?.content?.["application/json"];
  if (!content) {
    return [];
  }
  const table = element("table", "", ...fields(content.schema));
  return [element("p", "Takes"), json(content.example), table];
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
  const section = element(
    "section",
    "",
    title,
    element("p", "", ...codeElements(`${operation.summary}. ${operation.description ?? ""}`)),
    ...parameters(operation.parameters ?? []),
    ...body(operation.requestBody),
    ...answers(operation.responses),
  );
  section.id = operation.operationId;
  return section;
};

const show = (description) => {
  const { summary, version } = description.info;
  document.getElementById("summary").textContent = `${summary}, version ${version}`;
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
