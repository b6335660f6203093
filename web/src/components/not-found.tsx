import { Link } from "@tanstack/react-router";
import { Empty } from "./states";

export function NotFound() {
  return (
    <Empty title="There is no such page">
      <p>
        Go to the <Link to="/jobs">jobs</Link>.
      </p>
    </Empty>
  );
}
