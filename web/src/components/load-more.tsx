import type { ReactNode } from "react";
import { Button } from "./button";

interface LoadMoreProps {
  query: {
    hasNextPage: boolean;
    isFetchingNextPage: boolean;
    fetchNextPage: () => Promise<unknown>;
  };
  children: ReactNode; // for example "Older events"
}

/** A button for the next page of a list, while there is one. */
export function LoadMore({ query, children }: LoadMoreProps) {
  if (!query.hasNextPage) return null;
  return (
    <Button disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
      {query.isFetchingNextPage ? "Loading" : children}
    </Button>
  );
}
