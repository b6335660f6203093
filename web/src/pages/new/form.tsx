/** Fields of the form that read and write one member of the draft. */

import { Field } from "../../components/field";
import type { Draft, FieldErrors } from "./draft";

export interface Form {
  draft: Draft;
  errors: FieldErrors;
  change: (changed: Partial<Draft>) => void;
}

/** The members of the draft that are texts. */
type TextName = {
  [Name in keyof Draft]: Draft[Name] extends string ? Name : never;
}[keyof Draft];

interface TextFieldProps {
  form: Form;
  name: TextName & keyof FieldErrors;
  label: string;
  hint?: string;
  unit?: string;
  placeholder?: string;
  numeric?: boolean;
}

export function TextField({ form, name, label, hint, unit, placeholder, numeric }: TextFieldProps) {
  return (
    <Field label={label} hint={hint} unit={unit} error={form.errors[name]}>
      <input
        type="text"
        inputMode={numeric ? "decimal" : undefined}
        autoComplete="off"
        spellCheck={false}
        value={form.draft[name]}
        placeholder={placeholder}
        onChange={(event) => form.change({ [name]: event.target.value })}
      />
    </Field>
  );
}

interface SelectFieldProps {
  form: Form;
  name: TextName & keyof FieldErrors;
  label: string;
  hint?: string;
  options: readonly (readonly [value: string, label: string])[];
  onChoose?: (value: string) => void;
}

export function SelectField({ form, name, label, hint, options, onChoose }: SelectFieldProps) {
  const choose = onChoose ?? ((value: string) => form.change({ [name]: value }));
  return (
    <Field label={label} hint={hint} error={form.errors[name]}>
      <select value={form.draft[name]} onChange={(event) => choose(event.target.value)}>
        {options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </Field>
  );
}

interface JsonFieldProps {
  form: Form;
  name: "advanced" | "grader";
  label: string;
  hint: string;
  rows: number;
}

export function JsonField({ form, name, label, hint, rows }: JsonFieldProps) {
  return (
    <Field label={label} hint={hint} error={form.errors[name]}>
      <textarea
        rows={rows}
        spellCheck={false}
        value={form.draft[name]}
        onChange={(event) => form.change({ [name]: event.target.value })}
      />
    </Field>
  );
}
