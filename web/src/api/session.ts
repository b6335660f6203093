/** The API key of this browser tab, and how a sign-in link brings one. */

const STORED = "rekindle.key";
const LINK = "#sign-in=";

const listeners = new Set<() => void>();

/** The key in session storage: it is gone when the tab closes. */
export function storedKey(): string | null {
  return sessionStorage.getItem(STORED);
}

export function storeKey(key: string | null): void {
  if (key === null) sessionStorage.removeItem(STORED);
  else sessionStorage.setItem(STORED, key);
  for (const listener of listeners) listener();
}

/** Call `listener` when the key changes; returns the function that stops it. */
export function onKeyChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Take the one-time token of a sign-in link out of the address, so that it is not kept there. */
export function takeSignInToken(): string | null {
  if (!location.hash.startsWith(LINK)) return null;
  const token = decodeURIComponent(location.hash.slice(LINK.length));
  history.replaceState(history.state, "", location.pathname + location.search);
  return token;
}
