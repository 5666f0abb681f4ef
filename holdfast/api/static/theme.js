// Sets the chosen theme before the first paint: loaded in <head>, not as a module.
"use strict";

try {
  const theme = JSON.parse(localStorage.getItem("holdfast.theme"));
  if (theme === "light" || theme === "dark") {
    document.documentElement.dataset.theme = theme;
  }
} catch {
  // Storage is forbidden: the theme of the system holds.
}
