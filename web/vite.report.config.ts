import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

// One file with everything in it: `rekindle report` puts a job's data into it.
export default defineConfig({
  plugins: [react(), viteSingleFile()],
  publicDir: false,
  build: { target: "es2022", emptyOutDir: false, rolldownOptions: { input: "report.html" } },
});
