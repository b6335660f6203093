import { useRef, useState } from "react";
import { Button } from "./button";
import styles from "./copyable.module.css";

/** A text to copy, for example a command. */
export function Copyable({ title, text }: { title: string; text: string }) {
  const shown = useRef<HTMLPreElement>(null);
  const [copied, setCopied] = useState<string | null>(null); // the text, so that a new one shows
  const [selected, setSelected] = useState(false);

  async function copy() {
    const done = (await write(text)) || select(shown.current);
    setCopied(done ? text : null);
    setSelected(!done);
  }

  return (
    <section aria-label={title} className={styles.copyable}>
      <p className="row">
        <b>{title}</b>
        <Button onClick={copy}>{copied === text ? "Copied" : "Copy"}</Button>
        {selected && <span role="status">Selected: press Ctrl+C or ⌘C</span>}
      </p>
      <pre ref={shown} className={styles.text}>
        {text}
      </pre>
    </section>
  );
}

/** Write to the clipboard. Browsers have none on pages without TLS, and may refuse it. */
async function write(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Select what is shown, and copy it the old way; false where the browser does not. */
function select(shown: HTMLElement | null): boolean {
  if (shown === null) return false;
  window.getSelection()?.selectAllChildren(shown);
  return document.execCommand("copy");
}
