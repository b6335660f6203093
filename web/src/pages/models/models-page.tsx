export function ModelsPage() {
  return <h1>Models</h1>;
}
