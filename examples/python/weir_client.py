"""A small asynchronous client of Weir. Needs httpx.

    async with Weir("http://127.0.0.1:8080") as weir:
        if (decision := await weir.check("alice")).allowed: ...
        await weir.acquire("alice", cost=3)     # waits until admitted
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from types import TracebackType

import httpx

# The most that is added to a wait, as a part of it: clients that were refused together should not come back together.
SPREAD = 0.1


@dataclass(frozen=True)
class Decision:
    """What Weir said. `retry_after` is seconds; None means that waiting does not help."""

    allowed: bool
    status: int
    remaining: int | None
    retry_after: float | None
    reason: str | None
    headers: httpx.Headers


class NotAdmitted(Exception):
    """Waiting does not help, or takes longer than the caller has."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(f"not admitted: {decision.reason} (HTTP {decision.status})")
        self.decision = decision


class Weir:
    """`timeout` is seconds for one question. Weir that cannot be reached raises httpx.HTTPError: what then is the caller's to say."""

    def __init__(self, url: str, timeout: float = 1.0) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=timeout)

    async def __aenter__(self) -> Weir:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._http.aclose()

    async def check(self, user: str | None = None, cost: int = 1, **about: str) -> Decision:
        """Asks once. `about`: path, method, address. A question that Weir does not understand raises httpx.HTTPStatusError."""
        question = {"cost": cost, **about} | ({"user": user} if user is not None else {})
        response = await self._http.post("/v1/check", json=question)
        if response.status_code not in (200, 403, 422, 429, 503):
            response.raise_for_status()
        body = response.json()
        if response.status_code == 403 and body.get("code") != "blocked":
            response.raise_for_status()
        wait = body.get("retry_after")
        if wait is None and "retry-after" in response.headers:
            wait = float(response.headers["retry-after"])
        return Decision(response.status_code == 200, response.status_code, body.get("remaining"), wait, body.get("reason"), response.headers)

    async def acquire(self, user: str | None = None, cost: int = 1, patience: float = 60.0, **about: str) -> Decision:
        """Asks until admitted, waiting as long as Weir says, `patience` seconds in all."""
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while True:
            decision = await self.check(user, cost, **about)
            if decision.allowed:
                return decision
            if decision.retry_after is None:
                raise NotAdmitted(decision)
            wait = decision.retry_after * (1 + random.uniform(0, SPREAD))
            if loop.time() + wait > end:
                raise NotAdmitted(decision)
            await asyncio.sleep(wait)
