import type { Schemas } from "../../api/client";
import { bytes } from "../../format";
import styles from "./plan.module.css";

type Memory = Schemas["Memory"];

/** What holds the memory of a GPU at its busiest moment, by colour. */
const PARTS: readonly [string, string, readonly (keyof Memory)[]][] = [
  ["weights", "series-1", ["parameters"]],
  ["gradients and optimizer", "series-4", ["gradients", "optimizer", "update"]],
  ["activations and logits", "series-3", ["activations", "logits"]],
  ["cache of answers", "series-5", ["cache"]],
  ["buffers and runtime", "series-6", ["buffers", "runtime"]],
];

const GIB = 1024 ** 3;

interface MemoryBarProps {
  memory: Memory;
  gpuGib: number | null; // of the whole GPU
}

export function MemoryBar({ memory, gpuGib }: MemoryBarProps) {
  const parts = PARTS.map(([name, color, members]) => ({
    name,
    color,
    size: members.reduce((sum: number, member) => sum + Number(memory[member] ?? 0), 0),
  })).filter((part) => part.size > 0);
  const total = parts.reduce((sum, part) => sum + part.size, 0);
  const gpu = (gpuGib ?? 0) * GIB;
  const whole = Math.max(gpu, total, memory.needed);
  return (
    <div className={styles.memory}>
      <p className="small">
        <strong>Memory of each GPU:</strong>{" "}
        <span className="num">
          {bytes(memory.needed)} with a margin{gpu > 0 && ` of ${bytes(gpu)}`}
        </span>
      </p>
      <div className={styles.bar} aria-hidden="true">
        {parts.map((part) => (
          <i
            key={part.name}
            style={{ width: `${(100 * part.size) / whole}%`, background: `var(--${part.color})` }}
          />
        ))}
      </div>
      <ul className={styles.legend}>
        {parts.map((part) => (
          <li key={part.name}>
            <i style={{ background: `var(--${part.color})` }} />
            {part.name} <span className="num">{bytes(part.size)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
