/** The pages and their addresses. Each page is loaded when it is first opened. */

import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
} from "@tanstack/react-router";
import { NotFound } from "./components/not-found";
import { Shell } from "./components/shell";
import { ErrorBox } from "./components/states";
import {
  compareSearch,
  costsSearch,
  fleetSearch,
  jobSearch,
  jobsSearch,
  modelsSearch,
  newSearch,
} from "./search";

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/jobs" });
  },
});

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: jobsSearch,
  component: lazyRouteComponent(() => import("./pages/jobs/jobs-page"), "JobsPage"),
});

const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$jobId",
  validateSearch: jobSearch,
  component: lazyRouteComponent(() => import("./pages/job/job-page"), "JobPage"),
});

const newJob = createRoute({
  getParentRoute: () => root,
  path: "/new",
  validateSearch: newSearch,
  component: lazyRouteComponent(() => import("./pages/new/new-job-page"), "NewJobPage"),
});

const compare = createRoute({
  getParentRoute: () => root,
  path: "/compare",
  validateSearch: compareSearch,
  component: lazyRouteComponent(() => import("./pages/compare/compare-page"), "ComparePage"),
});

const models = createRoute({
  getParentRoute: () => root,
  path: "/models",
  validateSearch: modelsSearch,
  component: lazyRouteComponent(() => import("./pages/models/models-page"), "ModelsPage"),
});

const fleet = createRoute({
  getParentRoute: () => root,
  path: "/fleet",
  validateSearch: fleetSearch,
  component: lazyRouteComponent(() => import("./pages/fleet/fleet-page"), "FleetPage"),
});

const costs = createRoute({
  getParentRoute: () => root,
  path: "/costs",
  validateSearch: costsSearch,
  component: lazyRouteComponent(() => import("./pages/costs/costs-page"), "CostsPage"),
});

const settings = createRoute({
  getParentRoute: () => root,
  path: "/settings",
  component: lazyRouteComponent(() => import("./pages/settings/settings-page"), "SettingsPage"),
});

const system = createRoute({
  getParentRoute: () => root,
  path: "/system",
  component: lazyRouteComponent(() => import("./pages/system/system-page"), "SystemPage"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    home,
    jobs,
    job,
    newJob,
    compare,
    models,
    fleet,
    costs,
    settings,
    system,
  ]),
  defaultErrorComponent: ({ error, reset }) => <ErrorBox error={error} retry={reset} />,
  scrollRestoration: false, // it adds an inline script, which the Content-Security-Policy refuses
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
