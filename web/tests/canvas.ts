/** A canvas that takes every drawing and shows nothing: happy-dom has none. */

class NoPath {
  moveTo() {}
  lineTo() {}
  rect() {}
  arc() {}
  closePath() {}
  bezierCurveTo() {}
  addPath() {}
}

export function fakeCanvas(): void {
  const context = new Proxy({} as Record<string, unknown>, {
    get: (drawn, name: string) =>
      name === "measureText" ? () => ({ width: 10 }) : (drawn[name] ?? (() => undefined)),
    set: (drawn, name: string, value) => {
      drawn[name] = value;
      return true;
    },
  });
  HTMLCanvasElement.prototype.getContext = (() =>
    context) as unknown as typeof HTMLCanvasElement.prototype.getContext;
  globalThis.Path2D = NoPath as unknown as typeof Path2D;
}
