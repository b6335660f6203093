import { defineConfig } from "vitest/config";

// A real browser on a running service: CONSOLE_URL and CONSOLE_KEY say which.
export default defineConfig({
  test: {
    include: ["browser/**/*.test.ts"],
    testTimeout: 120_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
