"""A client that the package truth knows: its command and the reader of its result are there."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.referee.clients.client import Client
from benchmarks.referee.scenarios import Job, Scenario
from truth.result import Result
from truth.tools import Tool
from truth.work import Work


class ToolClient(Client):
    """`requirements` and `distribution`: what installs it here."""

    def __init__(self, tool: Tool, requirements: str, distribution: str) -> None:
        self.tool = tool
        self.name = tool.title
        self.requirements = requirements
        self.distribution = distribution

    def command(self, job: Job) -> list[str]:
        work = work_of(job.scenario, job.url, str(job.tokenizer))
        (command,) = self.tool.commands(work, job.folder)
        program = self.program(command[0])
        return [program, *command[1:]]

    def env(self, job: Job) -> Mapping[str, str]:
        return self.tool.env(work_of(job.scenario, job.url, str(job.tokenizer)))

    def unable(self, scenario: Scenario) -> str:
        return self.tool.unable(work_of(scenario, "", ""))

    def read(self, job: Job) -> Result:
        return self.tool.read(self.tool.result(job.folder))


def work_of(scenario: Scenario, url: str, tokenizer: str) -> Work:
    return Work(
        url=url,
        requests=scenario.requests,
        tokens=scenario.tokens,
        prompt_tokens=scenario.prompt_tokens,
        streams=scenario.streams,
        rate_rps=scenario.rate_rps,
        arrival=scenario.arrival,
        tokenizer=tokenizer,
    )
