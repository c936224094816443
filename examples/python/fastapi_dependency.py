"""A FastAPI dependency that asks Weir before a request is handled, and passes the refusal on. Needs fastapi and httpx.

    limited = limit(weir, lambda request: request.state.user)
    @app.get("/items", dependencies=[Depends(limited)])
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx
from fastapi import HTTPException, Request, Response

from weir_client import Weir

# What of Weir's answer the client should see.
PASSED_ON = ("retry-after", "retry-after-ms", "x-should-retry", "ratelimit", "ratelimit-policy")


def limit(
    weir: Weir, user: Callable[[Request], str | None], cost: int = 1, fail_open: bool = True
) -> Callable[[Request, Response], Awaitable[None]]:
    """`user` says who asks, from what the program has checked; None is an anonymous client, limited by its address.
    `fail_open`: whether requests pass while Weir cannot be reached."""

    async def limited(request: Request, response: Response) -> None:
        about = {"path": request.url.path, "method": request.method}
        if request.client is not None:
            about["address"] = request.client.host
        try:
            decision = await weir.check(user(request), cost, **about)
        except httpx.TransportError:
            if fail_open:
                return
            raise HTTPException(503, "the limits cannot be looked up", {"Retry-After": "1"}) from None
        headers = {name: decision.headers[name] for name in PASSED_ON if name in decision.headers}
        if not decision.allowed:
            raise HTTPException(decision.status, decision.reason, headers)
        response.headers.update(headers)

    return limited
