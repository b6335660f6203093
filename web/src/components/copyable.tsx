import { useState } from "react";
import { Button } from "./button";
import styles from "./copyable.module.css";

/** A text to copy, for example a command. */
export function Copyable({ title, text }: { title: string; text: string }) {
  const [copied, setCopied] = useState<string | null>(null); // the text, so that a new one shows
  return (
    <section aria-label={title}>
      <p className="row">
        <b>{title}</b>
        <Button
          onClick={async () => {
            await navigator.clipboard.writeText(text);
            setCopied(text);
          }}
        >
          {copied === text ? "Copied" : "Copy"}
        </Button>
      </p>
      <pre className={styles.text}>{text}</pre>
    </section>
  );
}
