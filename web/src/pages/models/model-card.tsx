import Markdown, { type MarkdownToJSX } from "markdown-to-jsx/react";
import { type AnchorHTMLAttributes, Children, type ThHTMLAttributes } from "react";
import styles from "./models-page.module.css";

const FRONT_MATTER = /^---\n[\s\S]*?\n---\n/;

/** A machine wrote the card, so no HTML of it is taken and no picture is loaded. */
const OPTIONS: MarkdownToJSX.Options = {
  disableParsingRawHTML: true,
  forceBlock: true,
  overrides: {
    h1: { component: "h3" }, // the page has its own h1 and h2
    h2: { component: "h4" },
    h3: { component: "h5" },
    a: { component: Outside },
    img: { component: ({ alt }: { alt?: string }) => <>{alt}</> },
    th: { component: Heading },
  },
};

/** The card (README.md) of a model as text with headings, tables and code. */
export default function ModelCard({ text }: { text: string }) {
  return (
    <article className={styles.card}>
      <Markdown options={OPTIONS}>{text.replace(FRONT_MATTER, "")}</Markdown>
    </article>
  );
}

function Outside(props: AnchorHTMLAttributes<HTMLAnchorElement>) {
  return <a {...props} target="_blank" rel="noreferrer" />;
}

/** A heading cell, where there is a heading. */
function Heading({ children, ...rest }: ThHTMLAttributes<HTMLTableCellElement>) {
  return Children.count(children) === 0 ? <td /> : <th {...rest}>{children}</th>;
}
