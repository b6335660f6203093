/** A page of the console at an address, with the API answered by handlers of MSW. */

import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRouter, RouterProvider } from "@tanstack/react-router";
import { render } from "@testing-library/react";
import { queryClient } from "../src/api/queries";
import { router } from "../src/router";

/** Show what the console has at `path`; returns its router. */
export function visit(path: string) {
  queryClient.clear();
  sessionStorage.setItem("rekindle.key", "rk-the-key-of-this-tab");
  const history = createMemoryHistory({ initialEntries: [path] });
  const placed = createRouter({ ...router.options, history });
  render(
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={placed as unknown as typeof router} />
    </QueryClientProvider>,
  );
  return placed;
}
