"""Where the ranks of one machine meet: a store on a free port, with nobody else to wait for."""

from __future__ import annotations

from datetime import timedelta

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

NAME = "w2w-one-machine"
HERE = "127.0.0.1"


class OneMachine(RendezvousHandler):
    """A rendezvous of one agent. That of several, "c10d", begins with a random pause of up to 0.3 s for each start."""

    def __init__(self, run_id: str, timeout: timedelta) -> None:
        self._run_id = run_id
        self._store = TCPStore(HERE, 0, is_master=True, timeout=timeout, wait_for_workers=False)

    @property
    def use_agent_store(self) -> bool:
        """Ranks connect to the agent's store instead of opening one."""
        return True

    def get_backend(self) -> str:
        """The name under which it is registered."""
        return NAME

    def next_rendezvous(self) -> RendezvousInfo:
        """The store; this agent is number 0 of 1."""
        where = RendezvousStoreInfo(HERE, self._store.port)
        return RendezvousInfo(PrefixStore(self._run_id, self._store), 0, 1, where)

    def is_closed(self) -> bool:
        """Never: it lives as long as its agent."""
        return False

    def set_closed(self) -> None:
        """Nothing to close: no other agent joins."""

    def num_nodes_waiting(self) -> int:
        """None: no other agent joins."""
        return 0

    def get_run_id(self) -> str:
        """The id that the agent was given."""
        return self._run_id

    def shutdown(self) -> bool:
        """The store ends with the agent's process."""
        return True


def register(timeout: timedelta) -> None:
    """Make it known to torch's launcher as NAME; `timeout` is that of its store."""

    def made(parameters: RendezvousParameters) -> RendezvousHandler:
        return OneMachine(parameters.run_id, timeout)

    rendezvous_handler_registry.register(NAME, made)
