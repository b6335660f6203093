/**
 * Divide a row, as the model reads it, into the turns of the chat.
 *
 * The API shows the text that the template of the model made. The markers of roles in it are those
 * of ChatML (Qwen, SmolLM), Llama 3, Gemma, Phi and Zephyr; text with other markers is one turn.
 */

export interface Segment {
  kind: "trained" | "context" | "cut";
  text: string;
  omitted?: number; // characters that are left out behind the text
}

export interface Piece extends Segment {
  marker: boolean; // a control token of the template
}

export interface Turn {
  role: string | null;
  pieces: Piece[];
}

const ROLES = "system|developer|user|assistant|model|tool|function|ipython";
const MARKERS = new RegExp(
  [
    `<\\|im_start\\|>(${ROLES})\\n?`,
    `<\\|start_header_id\\|>(${ROLES})<\\|end_header_id\\|>\\n*`,
    `<start_of_turn>(${ROLES})\\n?`,
    `<\\|(${ROLES})\\|>\\n?`,
    "<\\|[a-z_]+\\|>\\n?",
    "</?s>|<bos>|<eos>|<end_of_turn>\\n?",
  ].join("|"),
  "g",
);

export function turnsOf(segments: readonly Segment[]): Turn[] {
  const turns: Turn[] = [];
  let turn: Turn = { role: null, pieces: [] };
  const add = (piece: Piece) => {
    if (piece.text !== "" || piece.omitted) turn.pieces.push(piece);
  };
  for (const segment of segments) {
    let at = 0;
    for (const match of segment.text.matchAll(MARKERS)) {
      const role = match.slice(1).find((name) => name !== undefined);
      add({ kind: segment.kind, text: segment.text.slice(at, match.index), marker: false });
      if (role !== undefined) {
        const isBegun = turn.role !== null || turn.pieces.some((piece) => !piece.marker);
        if (isBegun) turns.push(turn);
        turn = { role, pieces: isBegun ? [] : turn.pieces };
      }
      add({ kind: segment.kind, text: match[0], marker: true });
      at = match.index + match[0].length;
    }
    add({ ...segment, text: segment.text.slice(at), marker: false });
  }
  turns.push(turn);
  return turns.filter((one) => one.pieces.length > 0);
}
