/** The text of a log, as it comes, as lines to show. */

const LONGEST = 4_000; // characters of a line; one of megabytes freezes the tab
const ESC = String.fromCharCode(27);
const COLOURS = new RegExp(`${ESC}\\[[0-9;?]*[A-Za-z]`, "g");

export interface LogLines {
  lines: string[];
  dropped: boolean; // older lines than these came
}

/** Collects text; keeps at most `most` lines, so that a day of output fits into the tab. */
export function logLines(most = 50_000): (text: string) => LogLines {
  let ended: string[] = [];
  let open = ""; // the line that has not ended yet
  let dropped = false;
  return (text) => {
    const parts = (open + text).split("\n");
    open = parts.pop() ?? "";
    ended = ended.concat(parts.map(shown));
    if (ended.length > most) {
      ended = ended.slice(-Math.ceil(most * 0.8)); // rarely, because rows move under the reader
      dropped = true;
    }
    return { lines: open === "" ? ended : [...ended, shown(open)], dropped };
  };
}

/** A carriage return begins the line anew, as progress bars do; colours are left out. */
function shown(line: string): string {
  const whole = line.replace(/\r+$/, "");
  const last = whole.slice(whole.lastIndexOf("\r") + 1).replace(COLOURS, "");
  if (last.length <= LONGEST) return last;
  return `${last.slice(0, LONGEST)} … ${last.length - LONGEST} more characters: download the log`;
}
