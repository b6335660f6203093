import { useEffect, useRef } from "react";
import { Button } from "../../components/button";
import { Copyable } from "../../components/copyable";
import type { NewKey } from "./keys-panel";
import styles from "./settings-page.module.css";

/** A new key's secret, until it is put away: the service keeps only its hash. */
export function ShownKey({ made, done }: { made: NewKey; done: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    <div ref={box} className={styles.shown} role="status" tabIndex={-1}>
      <Copyable title={`The key ${made.name}`} text={made.key} />
      <p>Copy it now: it is shown once and never again. Keep it like a password.</p>
      <Button onClick={done}>I have stored it</Button>
    </div>
  );
}
