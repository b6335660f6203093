/** Light, dark, or as the system has it. */

export type Theme = "system" | "light" | "dark";

const STORED = "rekindle.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

export function storedTheme(): Theme {
  const theme = localStorage.getItem(STORED);
  return theme === "light" || theme === "dark" ? theme : "system";
}

export function setTheme(theme: Theme): void {
  if (theme === "system") localStorage.removeItem(STORED);
  else localStorage.setItem(STORED, theme);
  applyTheme();
}

/** Set `data-theme` on the root; charts redraw on the event that this sends. */
export function applyTheme(): void {
  const theme = storedTheme();
  const shown = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
  document.documentElement.dataset.theme = shown;
  window.dispatchEvent(new Event("themechange"));
}

dark.addEventListener("change", applyTheme);

/** The value of a design token, for canvases. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
