/** Lists that come page by page, as one list of what was read so far. */

import { infiniteQueryOptions } from "@tanstack/react-query";

export const PAGE = 100; // the most items that the API gives at once

export interface Page<T> {
  data: T[];
  has_more: boolean;
  last_id: string | null;
}

/** Options of a list's query: `read` gets the page after this id, or the first one. */
export function pagesQuery<P extends Page<unknown>>(
  queryKey: readonly unknown[],
  read: (after: string | undefined) => Promise<P>,
) {
  return infiniteQueryOptions({
    queryKey,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam }) => read(pageParam),
    getNextPageParam: (page) => (page.has_more ? (page.last_id ?? undefined) : undefined),
  });
}

/** Every item of the pages that were read. */
export function itemsOf<T>(pages: readonly Page<T>[]): T[] {
  return pages.flatMap((page) => page.data);
}
