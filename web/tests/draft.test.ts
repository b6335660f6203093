import { expect, test } from "vitest";
import { EMPTY, METHODS, methodFor } from "../src/pages/new/draft";
import { fieldOf, requestOf } from "../src/pages/new/request";

test("rows of each format suggest a method that learns from them, and keep a fitting one", () => {
  for (const { rows } of Object.values(METHODS)) {
    for (const format of rows) {
      const chosen = methodFor(format, "reinforcement");
      expect(METHODS[chosen].rows).toContain(format);
    }
  }
  expect(methodFor("labelled_text", "supervised")).toBe("classification");
  expect(methodFor("preference", "supervised")).toBe("dpo");
  expect(methodFor("preference", "orpo")).toBe("orpo");
});

test("beta is sent with the methods that have it, and its errors are at its field", () => {
  const draft = { ...EMPTY, trainingFile: "file-1", model: "m", beta: "0.2" };
  const sent = requestOf({ ...draft, method: "orpo" });
  const unsent = requestOf({ ...draft, method: "supervised" });

  expect(sent).toMatchObject({ request: { method: { orpo: { hyperparameters: { beta: 0.2 } } } } });
  expect(JSON.stringify(unsent)).not.toContain("beta");
  expect(fieldOf("method.orpo.hyperparameters.beta", draft)).toBe("beta");
  expect(fieldOf("method.reinforcement.beta", draft)).toBe("advanced");
});
