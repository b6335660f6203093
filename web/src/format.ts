/** Figures as people read them: money, durations, times, sizes, counts. */

const count = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
});
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

/** Dollars: `$61.40`, `$0.0042` below a cent, `$1,204` from 1,000. */
export function money(amount: string | number | null | undefined): string {
  if (amount === null || amount === undefined) return "–";
  const value = Number(amount);
  const size = Math.abs(value);
  const digits = size >= 1000 ? 0 : size >= 0.01 || size === 0 ? 2 : 4;
  const text = new Intl.NumberFormat("en-US", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  }).format(size);
  return `${value < 0 ? "−" : ""}$${text}`;
}

export function integer(value: number): string {
  return count.format(value);
}

export function compact(value: number): string {
  return short.format(value);
}

/** Four significant digits, and powers of ten where they are shorter: `0.6021`, `3.1e-5`. */
export function decimal(value: number | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) {
    return value.toExponential(1).replace("e+", "e");
  }
  return Number(value.toPrecision(digits)).toString();
}

export function percent(share: number, digits = 0): string {
  return `${(share * 100).toFixed(digits)} %`;
}

export function bytes(size: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  let left = size;
  while (left >= 1024 && power < units.length - 1) {
    left /= 1024;
    power += 1;
  }
  return `${power === 0 ? left : left.toFixed(left < 10 ? 1 : 0)} ${units[power]}`;
}

/** A duration: `38 s`, `12 min`, `1 h 52 min`, `3 d 4 h`. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const rest = hours % 24;
  return rest ? `${Math.floor(hours / 24)} d ${rest} h` : `${Math.floor(hours / 24)} d`;
}

/** The time since or until `at` (Unix seconds): `5 min ago`, `in 2 h`. */
export function relative(at: number, now: number): string {
  const seconds = now - at;
  if (Math.abs(seconds) < 5) return "now";
  return seconds > 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

/** The time of day, with the date unless it is today. */
export function timeOfDay(at: number, now: number): string {
  const date = new Date(at * 1000);
  const today = new Date(now * 1000).toDateString() === date.toDateString();
  return today ? clock.format(date) : `${day.format(date)}, ${clock.format(date)}`;
}

export function absolute(at: number): string {
  return full.format(new Date(at * 1000));
}

/** A phase or code as words: `no_capacity` is "No capacity". */
export function words(code: string): string {
  const text = code.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
