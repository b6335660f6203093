export function SystemPage() {
  return <h1>System</h1>;
}
