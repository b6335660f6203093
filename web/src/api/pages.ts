/** Lists that come page by page, as one list of what was read so far. */

import { infiniteQueryOptions } from "@tanstack/react-query";

export const PAGE = 100; // the most items that the API gives at once

export interface Page<T> {
  data: T[];
  has_more: boolean;
  last_id: string | null;
  until?: number; // moment of a list that changes with time: later pages repeat it
}

/** Where a page begins; nothing for the first one. */
export interface Start {
  after?: string;
  until?: number;
}

/** Options of a list's query: `read` gets the page that begins there. */
export function pagesQuery<P extends Page<unknown>>(
  queryKey: readonly unknown[],
  read: (start: Start) => Promise<P>,
) {
  return infiniteQueryOptions({
    queryKey,
    initialPageParam: {} as Start,
    queryFn: ({ pageParam }) => read(pageParam),
    getNextPageParam: ({ has_more, last_id, until }): Start | undefined =>
      has_more && last_id !== null ? { after: last_id, until } : undefined,
  });
}

/** Every item of the pages that were read. */
export function itemsOf<T>(pages: readonly Page<T>[]): T[] {
  return pages.flatMap((page) => page.data);
}
