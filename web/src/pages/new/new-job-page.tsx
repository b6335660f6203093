export function NewJobPage() {
  return <h1>NewJob</h1>;
}
