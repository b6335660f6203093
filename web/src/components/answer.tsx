import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ApiError } from "../api/client";
import { Empty, ErrorBox, Loading } from "./states";

interface AnswerProps<T> {
  query: Pick<UseQueryResult<T>, "data" | "error"> & { refetch: () => Promise<unknown> };
  lines?: number; // height while it loads
  children: (data: T) => ReactNode;
}

/** What a query answered; until then grey lines, and otherwise the error or the key it needs. */
export function Answer<T>({ query, lines = 4, children }: AnswerProps<T>) {
  const { data, error, refetch } = query;
  if (error instanceof ApiError && error.status === 403) {
    return (
      <Empty title="This needs an operator's key">
        <p>{error.message}</p>
      </Empty>
    );
  }
  return (
    <>
      {error !== null && <ErrorBox error={error} retry={() => void refetch()} />}
      {data !== undefined && children(data)}
      {data === undefined && error === null && <Loading lines={lines} />}
    </>
  );
}
