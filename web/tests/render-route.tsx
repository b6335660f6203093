/** Show one address of the console against an API that the test describes. */

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRouter, RouterProvider } from "@tanstack/react-router";
import { configure, render } from "@testing-library/react";
import { router } from "../src/router";

configure({ asyncUtilTimeout: 10_000 }); // for slow machines; what is there is found at once

export function renderRoute(address: string) {
  const history = createMemoryHistory({ initialEntries: [address] });
  const shown = createRouter({ routeTree: router.routeTree, history, scrollRestoration: false });
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  render(
    <QueryClientProvider client={client}>
      <RouterProvider router={shown as unknown as typeof router} />
    </QueryClientProvider>,
  );
  return { history };
}
