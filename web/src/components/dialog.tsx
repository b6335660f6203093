import { AlertDialog } from "@base-ui/react/alert-dialog";
import { type ReactElement, type ReactNode, useState } from "react";
import { Button, buttonClass } from "./button";
import styles from "./dialog.module.css";
import { ErrorBox } from "./states";

interface ConfirmProps {
  trigger: ReactElement<Record<string, unknown>>;
  title: string;
  children: ReactNode; // what happens, and what it costs
  action: string; // the word on the button that does it
  danger?: boolean;
  onOpen?: () => void;
  onConfirm: () => Promise<unknown>;
}

/** Ask before something is done; it stays open, with the error, where that fails. */
export function Confirm({
  trigger,
  title,
  children,
  action,
  danger,
  onOpen,
  onConfirm,
}: ConfirmProps) {
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);

  async function confirm() {
    setBusy(true);
    setError(null);
    try {
      await onConfirm();
      setOpen(false);
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  }

  return (
    <AlertDialog.Root
      open={open}
      onOpenChange={(opened) => {
        setOpen(opened);
        setError(null);
        if (opened) onOpen?.();
      }}
    >
      <AlertDialog.Trigger render={trigger} />
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className={styles.backdrop} />
        <AlertDialog.Popup className={styles.popup}>
          <AlertDialog.Title className={styles.title}>{title}</AlertDialog.Title>
          <AlertDialog.Description render={<div className={styles.text} />}>
            {children}
          </AlertDialog.Description>
          {error !== null && <ErrorBox error={error} />}
          <div className={styles.buttons}>
            <AlertDialog.Close className={buttonClass()}>Back</AlertDialog.Close>
            <Button kind={danger ? "danger" : "primary"} disabled={busy} onClick={confirm}>
              {busy ? "Sending" : action}
            </Button>
          </div>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
