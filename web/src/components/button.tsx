import type { ButtonHTMLAttributes } from "react";
import styles from "./button.module.css";

type Kind = "plain" | "primary" | "danger";

export function Button({
  kind = "plain",
  className = "",
  ...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { kind?: Kind }) {
  return <button type="button" className={`${buttonClass(kind)} ${className}`} {...rest} />;
}

/** The same look, for links. */
export function buttonClass(kind: Kind = "plain"): string {
  return `${styles.button} ${styles[kind] ?? ""}`;
}
