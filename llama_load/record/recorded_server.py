"""What is known of the server behind a recording: its slots, its command line, its log and its
cache."""

from __future__ import annotations

from contextlib import suppress

from llama_load.analysis.topics.reprocessing import is_without_cache
from llama_load.analysis.topics.reprocessing.kv_blocks import KvBlocks
from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.record.recorded_cache import RecordedCache
from llama_load.run_folder.server_files import MIDDLE_LEFT_OUT, shortened
from llama_load.servers.address import parse_url
from llama_load.servers.json_fields import fields
from llama_load.servers.kinds.slot_log import SlotLog, read_slot_log
from llama_load.servers.serving.local_server import LocalServer, find_local_server
from llama_load.servers.target import Target
from llama_load.servers.usage import known_count

TIMEOUT_S = 5


class RecordedServer:
    """Looked up as the recording begins, and again at its end if it was not there."""

    def __init__(self, url: str, session: Session) -> None:
        self._url = url
        self._session = session
        self._server: LocalServer | None = None
        self._slots: int | None = None
        self._cache = RecordedCache(url, session)

    def look_at_cache(self) -> None:
        """Sample what it says of its cache, as requests end."""
        self._cache.look()

    def look(self) -> None:
        """Find its process and its log, if it is on this machine, and ask for its slots."""
        if self._slots is None:
            self._slots = self._asked_slots()
        if self._server is None or self._server.log is None:
            with suppress(OSError, ValueError):
                address = parse_url(self._url).resolved()
                target = Target(address, "llama-server", None, slots=self._slots)
                self._server = find_local_server(target)

    @property
    def slots(self) -> int | None:
        """Those that it reports, as llama-server does."""
        return self._slots

    @property
    def is_without_cache(self) -> bool:
        """Whether it was started without a prompt cache."""
        return is_without_cache(self._command)

    @property
    def blocks(self) -> KvBlocks:
        """What is known of its blocks, as vLLM reports it."""
        return self._cache.blocks(self._command or "")

    @property
    def _command(self) -> str | None:
        if self._server is None:
            return None
        return self._server.describe().command

    def log(self) -> SlotLog | None:
        """What its log says; None if it is not known."""
        if self._server is None:
            return None
        text = shortened(*self._server.log_ends())
        found = read_slot_log(text.split("\n"), MIDDLE_LEFT_OUT)
        return found if found.tasks else None

    def _asked_slots(self) -> int | None:
        try:
            answer = self._session.get(f"{self._url}/props", within_s=TIMEOUT_S)
            props = fields(answer.json()) if answer.ok else {}
        except (NoAnswerError, ValueError):
            return None
        return known_count(props.get("total_slots"))
