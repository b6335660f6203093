/** Which tabs may hold a stream open: HTTP/1.1 has six connections for all tabs of one host. */

const PLACES = 4; // the other two connections are for requests

/**
 * Take one of the places that the tabs of this browser share: what frees it, or null where none is
 * free. A tab that is closed or crashes frees its own. Over plain HTTP from another machine a
 * browser has no locks; then each tab holds its stream.
 */
export async function takePlace(): Promise<(() => void) | null> {
  if (!navigator.locks) return () => undefined;
  for (let place = 0; place < PLACES; place += 1) {
    const free = await takeLock(`rekindle.stream.${place}`);
    if (free !== null) return free;
  }
  return null;
}

function takeLock(name: string): Promise<(() => void) | null> {
  return new Promise((resolve, reject) => {
    const hold = (lock: Lock | null) =>
      lock === null ? resolve(null) : new Promise<void>((free) => resolve(free));
    navigator.locks.request(name, { ifAvailable: true }, hold).catch(reject);
  });
}
