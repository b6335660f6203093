import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// `npm run dev` shows the page with the API of a stack that runs already (`make up`).
const api = process.env.REKINDLE_API ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react()],
  server: { proxy: { "/v1": api, "/docs": api } },
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // data: URLs are not allowed by the Content-Security-Policy
    modulePreload: { polyfill: false },
    sourcemap: false,
  },
  test: {
    environment: "happy-dom",
    include: ["tests/**/*.test.{ts,tsx}"],
    setupFiles: ["tests/setup.ts"],
    testTimeout: 60_000, // no test depends on how fast the machine is
  },
});
