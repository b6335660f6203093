import { Link, Outlet, useLocation } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { storeKey } from "../api/session";
import { setTheme, storedTheme, type Theme } from "../theme";
import styles from "./shell.module.css";

const PAGES = [
  ["/jobs", "Jobs"],
  ["/new", "New job"],
  ["/compare", "Compare"],
  ["/models", "Models"],
  ["/fleet", "Fleet"],
  ["/costs", "Costs"],
  ["/settings", "Settings"],
  ["/system", "System"],
] as const;

/** Navigation beside every page. */
export function Shell() {
  const pages = useRef<HTMLDivElement>(null);
  const { pathname } = useLocation();
  // biome-ignore lint/correctness/useExhaustiveDependencies: another page is another link
  useEffect(() => {
    // On a phone the row of pages is wider than the screen.
    const here = pages.current?.querySelector("[aria-current=page]");
    here?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [pathname]);
  return (
    <div className={styles.app}>
      <a className={styles.skip} href="#main">
        Skip to the page
      </a>
      <nav className={styles.nav} aria-label="Main">
        <Link to="/jobs" className={styles.brand}>
          Rekindle
        </Link>
        <div ref={pages} className={styles.pages}>
          {PAGES.map(([to, name]) => (
            <Link key={to} to={to} activeProps={{ className: styles.here, "aria-current": "page" }}>
              {name}
            </Link>
          ))}
        </div>
        <div className={styles.foot}>
          <ThemeChoice />
          <a href="/docs">API reference</a>
          <button type="button" className={styles.plain} onClick={() => storeKey(null)}>
            Sign out
          </button>
        </div>
      </nav>
      <main id="main" className={styles.main} tabIndex={-1}>
        <Outlet />
      </main>
    </div>
  );
}

function ThemeChoice() {
  const [theme, choose] = useState<Theme>(storedTheme);
  return (
    <label className={styles.theme}>
      <span className="visually-hidden">Theme</span>
      <select
        value={theme}
        onChange={(event) => {
          const chosen = event.target.value as Theme;
          setTheme(chosen);
          choose(chosen);
        }}
      >
        <option value="system">System theme</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
    </label>
  );
}
