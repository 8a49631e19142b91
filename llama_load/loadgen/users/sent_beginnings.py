"""Which prompts begin alike: what a prompt cache could reuse of a prompt that belongs to no
conversation, or begins one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass, field

from llama_load.loadgen.users.compared_prompts import ComparedPrompt
from llama_load.servers.apis.changed_prompts import common_length

# Beginnings of planned prompts are known before the run: of these only long ones are looked for.
# Of prompts that the locustfile writes shorter ones are a word in common by chance.
WRITTEN_CHARS = 8
# The texts that are kept to compare others with. Further ones are compared, but not kept.
MOST_CHARS = 16 << 20
MOST_TEXTS = 100_000

# Server, endpoint, model and adapter: a cached prompt is of use only with all of these.
Cache = tuple[str, str, str | None, str | None]


@dataclass(slots=True)
class _Texts:
    """Of one cache: the texts in their order, and the last request with each."""

    texts: list[str] = field(default_factory=list)
    requests: dict[str, str] = field(default_factory=dict)


class SentBeginnings:
    """The prompts that this process has had answers to.

    A text begins most like one of its two neighbours in the order of the texts, so no others are
    looked at. `least_chars`: shorter beginnings do not count.
    """

    def __init__(self) -> None:
        self._caches: dict[Cache, _Texts] = defaultdict(_Texts)
        self._chars = 0
        self._count = 0

    def compared(self, cache: Cache, text: str, least_chars: int) -> ComparedPrompt:
        """This prompt beside the one that begins most like it. The same text again does not count:
        repeated prompts are no shared beginning."""
        if len(text) < least_chars or cache not in self._caches:
            return ComparedPrompt()
        known = self._caches[cache]
        at = bisect_left(known.texts, text)
        after = at
        if text in known.requests:
            after = at + 1
        found = ComparedPrompt()
        most = least_chars - 1
        for place in (at - 1, after):
            if not 0 <= place < len(known.texts):
                continue
            earlier = known.texts[place]
            common = common_length(earlier, text)
            if common > most:
                most = common
                request = known.requests[earlier]
                found = ComparedPrompt(len(earlier), common, earlier_request=request)
        return found

    def add(self, cache: Cache, text: str, request_id: str, least_chars: int) -> None:
        """A prompt was answered: a server has it."""
        if len(text) < least_chars:
            return
        known = self._caches[cache]
        if text not in known.requests:
            if self._chars + len(text) > MOST_CHARS or self._count >= MOST_TEXTS:
                return
            self._chars += len(text)
            self._count += 1
            insort(known.texts, text)
        known.requests[text] = request_id
