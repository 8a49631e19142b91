"""Flaws of servers and networks as users report them in public trackers: lanes that fill, kernels
that are compiled, pods that restart, packets that are lost."""

from __future__ import annotations

import math

from llama_load.ground.units import NS_PER_S
from tests.search.answers import Answer
from tests.search.cache_flaws import GROUPS
from tests.search.case import Case, Change
from tests.search.client_flaws import LATE, merged
from tests.search.effect import BEGIN_NS, Effect, Reads
from tests.search.strange_gateways import FAILURES, HELD
from tests.search.time_flaws import CHANGES_OF_TIME

MS = 1_000_000


class Overflow(Effect):
    """A fast pool takes three quarters of the load; what comes while it is full goes to one that is
    `size` times as slow. Source: github.com/Azure/apim-landing-zone-accelerator/pull/127 (provisioned
    throughput with spill-over)."""

    checks = (*GROUPS, "changed_ratio")
    sizes = (2.0, 4.0)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.capacity = max(1, math.floor(0.75 * case.at_once))
        self.ends_ns: list[float] = []

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Enough requests at a time."""
        return case.at_once >= 2 and not case.stages

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        self.ends_ns = [end_ns for end_ns in self.ends_ns if end_ns > answer.begin_ns]
        if len(self.ends_ns) < self.capacity:
            work_ns = answer.prefill_ns + float(answer.gaps_ns.sum())
            self.ends_ns.append(answer.begin_ns + work_ns)
            return
        answer.prefill_ns = round(answer.prefill_ns * self.size)
        answer.gaps_ns = answer.gaps_ns * self.size


class Neighbour(Effect):
    """Another program uses the GPU for three tenths of each fifth of the run: all work takes `size`
    times as long meanwhile. Modelled on time-slicing of GPUs: github.com/NVIDIA/k8s-device-plugin."""

    checks = (*CHANGES_OF_TIME, *GROUPS)
    sizes = (2.0, 4.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Some requests in each part."""
        return case.requests >= 80 and not case.stages

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        period_s = self.case.nominal_s / 5
        since_s = (answer.begin_ns - BEGIN_NS) / NS_PER_S
        if since_s % period_s < 0.3 * period_s:
            answer.prefill_ns = round(answer.prefill_ns * self.size)
            answer.gaps_ns = answer.gaps_ns * self.size


class KernelsCompiled(Effect):
    """The first prompt of each length, in steps of a fifth, waits `size` s for a kernel that is
    compiled. Source: github.com/vllm-project/vllm/issues/56684 (3.4 s each)."""

    checks = (*CHANGES_OF_TIME, *GROUPS)
    sizes = (1.0, 3.4)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.compiled: set[int] = set()

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Prompts of different lengths."""
        return case.prompt_law != "fixed"

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        shape = round(math.log(answer.prompt_tokens, 1.2))
        if shape not in self.compiled:
            answer.prefill_ns += round(self.size * NS_PER_S)
        self.compiled.add(shape)


class CreditsSpent(Effect):
    """A rate limit lets the first three tenths of the requests through at once and delays each one
    after them by `size` ms. Source: nginx's limit_req with delay, and CPU credits of small cloud
    machines."""

    checks = (*CHANGES_OF_TIME, "unexplained_ratio")
    sizes = (100.0, 1000.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """A closed loop: the delay takes a slot."""
        return bool(case.users) and not case.stages

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if answer.ask.place >= 0.3:
            answer.unseen_ns += round(self.size * MS)
            answer.begin_ns += round(self.size * MS)


class Restarted(Effect):
    """The server's pod is killed and starts again: requests of a twentieth of the run get status
    503, and the first ones after them wait `size` s. Modelled on out-of-memory restarts under
    Kubernetes."""

    checks = (*FAILURES, *CHANGES_OF_TIME)
    sizes = (2.0, 10.0)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.to_wait = max(1, round(case.at_once))

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Some requests in that part."""
        return case.requests >= 80 and not case.stages

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        place = answer.ask.place
        if 0.5 <= place < 0.55:
            answer.status = 503
            answer.prefill_ns = MS
            answer.words = answer.words[:1]
            answer.gaps_ns = answer.gaps_ns[:0]
        elif place >= 0.55 and self.to_wait:
            self.to_wait -= 1
            answer.prefill_ns += round(self.size * NS_PER_S)


class Delayed(Effect):
    """The server's kernel sends small pieces together: while one is not acknowledged, the next ones
    wait, and the client acknowledges after `size` ms. Source:
    github.com/ai-dynamo/dynamo/pull/14643, github.com/pegainfer-project/pegainfer/pull/23."""

    checks = (*HELD, "early_first_ratio")
    sizes = (40.0, 200.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Steps shorter than the delay: others are acknowledged in time."""
        return case.gap_ms < 40

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        sent: Reads = []
        held = b""
        free_ns = 0
        for at_ns, data in reads:
            if held and at_ns >= free_ns:
                sent.append((free_ns, held))
                free_ns += round(self.size * MS)
                held = b""
            if at_ns >= free_ns:
                sent.append((at_ns, data))
                free_ns = at_ns + round(self.size * MS)
            else:
                held += data
        if held:
            sent.append((free_ns, held))
        return sent


class PacketLost(Effect):
    """A packet of the answer is lost and comes `size` ms later, with what was sent meanwhile.
    Modelled on TCP's retransmission timeout of 200 ms, doubled when it is lost again."""

    checks = (*HELD, *LATE, "outlier_shift")
    sizes = (200.0, 1400.0)
    shares = (0.1, 0.5)

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        if not self.hits(answer.ask) or len(reads) < 4:
            return reads
        lost = int(self.rng(answer.ask).integers(1, len(reads)))
        comes_ns = reads[lost][0] + round(self.size * MS)
        late = [(comes_ns, data) for at_ns, data in reads[lost:] if at_ns <= comes_ns]
        on_time = [read for read in reads[lost:] if read[0] > comes_ns]
        return merged([*reads[:lost], *late, *on_time], comes_ns, comes_ns + 1)


class ConnectedLate(Effect):
    """Some connections take `size` s: their first packet was dropped by a full queue, or a name was
    looked up twice. Source: github.com/gwsystems/sledge-serverless-framework/pull/395 (1 s),
    github.com/kubernetes/kubernetes/issues/56903 (5 s)."""

    checks = (*LATE, *GROUPS, "outlier_shift", "unexplained_ratio")
    sizes = (1.0, 5.0)
    shares = (0.03, 0.1)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Others have slots while one waits, which holds its own."""
        return case.slots > 1

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            late_ns = round(self.size * NS_PER_S)
            answer.connect_ns += late_ns
            answer.unseen_ns += late_ns
            answer.begin_ns += late_ns


STRANGE_SERVERS: dict[str, type[Effect]] = {
    "overflow to a slow pool": Overflow,
    "noisy neighbour": Neighbour,
    "kernels compiled": KernelsCompiled,
    "credits spent": CreditsSpent,
    "restarted": Restarted,
    "acknowledged late": Delayed,
    "packet lost": PacketLost,
    "connected late": ConnectedLate,
}
