"""A Scrapy downloader middleware for polite crawlers: asks Weir before each request, and honours a site's own 429 and Retry-After. Needs
scrapy and httpx.

    DOWNLOADER_MIDDLEWARES = {"scrapy_weir.WeirMiddleware": 560}
    WEIR_URL = "http://127.0.0.1:8080"      # where Weir is
    WEIR_USER = "crawler-7"                 # who crawls; request.meta["weir_user"] for a single request
    WEIR_PATIENCE = 300                     # the longest wait for one request, seconds

560 is nearer to the network than Scrapy's own RetryMiddleware (550), so this one sees a 429 first.
"""

from __future__ import annotations

import asyncio
import logging
from email.utils import parsedate_to_datetime
from datetime import datetime, timezone
from typing import Any

import httpx
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from weir_client import NotAdmitted, Weir

log = logging.getLogger(__name__)

# How often one request is asked for again after a 429 of the site.
MOST_RETRIES = 5


def wait_of(response: Response) -> float:
    """Seconds that a 429 asks for: retry-after-ms, else Retry-After as seconds or as a date, else one."""
    milliseconds, after = response.headers.get("retry-after-ms"), response.headers.get("Retry-After")
    try:
        if milliseconds:
            return max(0.0, float(milliseconds) / 1000)
        if after and after.strip().isdigit():
            return float(after)
        if after:
            return max(0.0, (parsedate_to_datetime(after.decode("ascii")) - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError, UnicodeDecodeError):
        pass
    return 1.0


class WeirMiddleware:
    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._weir = Weir(settings.get("WEIR_URL", "http://127.0.0.1:8080"))
        self._user: str = settings.get("WEIR_USER", "scrapy")
        self._patience = settings.getfloat("WEIR_PATIENCE", 300.0)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> WeirMiddleware:
        return cls(crawler)

    async def process_request(self, request: Request, spider: Any = None) -> None:
        user = request.meta.get("weir_user", self._user)
        try:
            await self._weir.acquire(user, patience=self._patience)
        except NotAdmitted as refused:
            raise IgnoreRequest(str(refused)) from refused
        except httpx.TransportError as error:
            # A crawl should not stop because its limiter does; the site's own 429 is still honoured.
            log.warning("weir cannot be reached: %s", error)

    async def process_response(self, request: Request, response: Response, spider: Any = None) -> Request | Response:
        retries = request.meta.get("weir_retries", 0)
        wait = wait_of(response) if response.status == 429 else 0.0
        if response.status != 429 or retries >= MOST_RETRIES or wait > self._patience:
            return response
        await asyncio.sleep(wait)
        return request.replace(dont_filter=True, meta={**request.meta, "weir_retries": retries + 1})
