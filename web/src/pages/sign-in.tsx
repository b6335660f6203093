import {
  type FormEvent,
  Fragment,
  type ReactNode,
  useEffect,
  useEffectEvent,
  useState,
  useSyncExternalStore,
} from "react";
import { ApiError, errorOf } from "../api/client";
import { queryClient } from "../api/queries";
import { onKeyChange, storedKey, storeKey, takeSignInToken } from "../api/session";
import { Button } from "../components/button";
import { Field } from "../components/field";
import styles from "./sign-in.module.css";

/** Show the console to who has a key, and the sign-in form to everybody else. */
export function SignedIn({ children }: { children: ReactNode }) {
  const key = useSyncExternalStore(onKeyChange, storedKey);
  const link = useSignInLink();
  useEffect(() => {
    if (key === null) queryClient.clear();
  }, [key]);
  return key === null ? <SignIn link={link} /> : <Fragment key={key}>{children}</Fragment>;
}

interface Attempt {
  busy: boolean;
  error: string | null;
  run: (find: () => Promise<string>) => Promise<void>;
}

/** Store the key that is found. It may be of another project, so nothing that was read stays. */
function useAttempt(): Attempt {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);

  async function run(find: () => Promise<string>) {
    setBusy(true);
    setError(null);
    try {
      const key = await find();
      queryClient.clear();
      storeKey(key);
    } catch (failure) {
      // A tab that is signed in stays so: its form does not show.
      if (storedKey() === null) setError(failure instanceof Error ? failure.message : `${failure}`);
    } finally {
      setBusy(false);
    }
  }
  return { busy, error, run };
}

/** Follow a sign-in link, also one that is opened in a tab that shows the console already. */
function useSignInLink(): Attempt {
  const attempt = useAttempt();
  const follow = useEffectEvent(() => {
    const token = takeSignInToken();
    if (token !== null) void attempt.run(() => exchange(token));
  });
  useEffect(() => {
    const listener = () => follow();
    listener();
    window.addEventListener("hashchange", listener);
    return () => window.removeEventListener("hashchange", listener);
  }, []);
  return attempt;
}

function SignIn({ link }: { link: Attempt }) {
  const [key, setKey] = useState("");
  const typed = useAttempt();
  const error = typed.error ?? link.error;
  const busy = typed.busy || link.busy;

  function submit(event: FormEvent) {
    event.preventDefault();
    void typed.run(() => checked(key.trim()));
  }

  return (
    <main className={styles.page}>
      <form className={styles.form} onSubmit={submit}>
        <h1>Sign in to Rekindle</h1>
        <p className="muted">
          Train language models on Azure Spot machines. Use an API key; it stays in this tab until
          you close it.
        </p>
        <Field
          label="API key"
          error={error ?? undefined}
          hint={
            <>
              <code>make up</code> prints a sign-in link. An operator makes keys with{" "}
              <code>python -m service.main key create</code>.
            </>
          }
        >
          <input
            type="password"
            name="key"
            autoComplete="current-password"
            spellCheck={false}
            value={key}
            onChange={(event) => setKey(event.target.value)}
          />
        </Field>
        <Button kind="primary" type="submit" disabled={busy || key.trim() === ""}>
          {busy ? "Signing in" : "Sign in"}
        </Button>
      </form>
    </main>
  );
}

/** The key, if the API takes it. */
async function checked(key: string): Promise<string> {
  const response = await send("/v1/models", { headers: { authorization: `Bearer ${key}` } });
  if (response.status === 401) {
    throw new ApiError(401, "This key is wrong, revoked or expired. Check it, or use another key.");
  }
  if (!response.ok) throw await errorOf(response);
  return key;
}

/** The key that a one-time token of a sign-in link gives. */
async function exchange(token: string): Promise<string> {
  const response = await send("/v1/sign_in", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (!response.ok) throw await errorOf(response);
  return (await response.json()).key;
}

async function send(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch {
    throw new ApiError(0, "The service did not answer. Check that it runs, then retry.");
  }
}
