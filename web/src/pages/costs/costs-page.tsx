export function CostsPage() {
  return <h1>Costs</h1>;
}
