"""A model of runs and nodes, written without looking at the code: what every status must be after each event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BLOCKED_BY = {"FAILED", "STOPPED", "SKIPPED"}
MOST_DEATHS = 3


@dataclass
class ModelNode:
    above: Sequence[str]
    max_attempts: int
    status: str = "PENDING"
    attempt: int = 0
    tries: int = 0
    deaths: int = 0


@dataclass
class Model:
    """The statuses after everything that follows by itself has happened. No node has to wait for a thread."""

    nodes: Mapping[str, ModelNode]
    run: str = "RUNNING"
    # a run that was stopped is STOPPED, whatever failed in it before, until somebody brings it back
    was_stopped: bool = False
    # every attempt that was begun
    begun: set[tuple[str, int]] = field(default_factory=set)

    def running(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.status == "RUNNING"]

    def follow(self) -> None:
        """Goes on until nothing changes by itself any more."""
        changed = True
        while changed:
            changed = False
            for name, node in self.nodes.items():
                new = self._next(node)
                if new != node.status:
                    if new == "RUNNING":
                        node.attempt += node.status in ("PENDING", "SKIPPED")
                        node.tries += 1
                        self.begun.add((name, node.attempt))
                    node.status, changed = new, True
        present = {node.status for node in self.nodes.values()}
        if present & {"PENDING", "RUNNING", "RETRYING"}:
            self.run = "RUNNING"
        elif self.was_stopped:
            self.run = "STOPPED"
        else:
            self.run = next((status for status in ("FAILED", "STOPPED") if status in present), "SUCCESS")

    def _next(self, node: ModelNode) -> str:
        above = {self.nodes[name].status for name in node.above}
        if node.status == "RETRYING":
            return "RUNNING"
        if node.status not in ("PENDING", "SKIPPED"):
            return node.status
        if above & BLOCKED_BY:
            return "SKIPPED"
        return "RUNNING" if above <= {"SUCCESS"} else "PENDING"

    # -- events -----------------------------------------------------------------------------------------------------

    def succeed(self, name: str) -> None:
        self.nodes[name].status = "SUCCESS"

    def fail(self, name: str) -> None:
        node = self.nodes[name]
        if node.tries < node.max_attempts:
            node.status, node.attempt = "RETRYING", node.attempt + 1
        else:
            node.status = "FAILED"

    def retry(self, name: str) -> bool:
        """Whether the operation is allowed."""
        node = self.nodes[name]
        if node.status not in ("FAILED", "STOPPED"):
            return False
        node.status, node.attempt, node.tries, node.deaths = "RETRYING", node.attempt + 1, 0, 0
        self.was_stopped = False
        return True

    def complete(self, name: str) -> bool:
        node = self.nodes[name]
        if node.status in ("PENDING", "SKIPPED"):
            return False
        self.was_stopped = self.was_stopped and node.status == "SUCCESS"
        node.status = "SUCCESS"
        return True

    def stop(self) -> bool:
        """A stop of a run that has failed or succeeded is refused."""
        if self.run in ("SUCCESS", "FAILED"):
            return False
        for name in self.running():
            self.nodes[name].status = "STOPPED"
        self.was_stopped = True
        return True

    def leave(self) -> None:
        """The platform is stopped in order and started again."""
        for name in self.running():
            node = self.nodes[name]
            node.status, node.attempt, node.tries = "RETRYING", node.attempt + 1, node.tries - 1

    def die(self) -> None:
        """The process dies, and another one takes over."""
        for name in self.running():
            node = self.nodes[name]
            node.deaths += 1
            if node.deaths < MOST_DEATHS:
                node.status, node.attempt, node.tries = "RETRYING", node.attempt + 1, node.tries - 1
            else:
                node.status = "FAILED"
