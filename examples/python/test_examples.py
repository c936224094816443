"""The examples against a real service and a real program behind the middleware. tests/clients.rs starts both and says where they are:
WEIR_URL (2 units at once, then 4 a second for each user) and PROGRAM_URL (the same limits before a stub of an LLM provider)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import openai
import pytest
from fastapi import Depends, FastAPI

from fastapi_dependency import limit
from weir_client import NotAdmitted, Weir

WEIR = os.environ["WEIR_URL"]
PROGRAM = os.environ["PROGRAM_URL"]
HERE = Path(__file__).parent


def test_the_client_is_told_when_to_come_back_and_waits() -> None:
    async def story() -> None:
        async with Weir(WEIR, timeout=20) as weir:
            decisions = [await weir.check("httpx", cost=2), await weir.check("httpx", cost=2)]
            assert [decision.allowed for decision in decisions] == [True, False]
            assert decisions[1].reason == "bucket" and 0 < (decisions[1].retry_after or 0) <= 0.5
            start = time.monotonic()
            assert (await weir.acquire("httpx", cost=2)).allowed
            assert time.monotonic() - start > 0.05
            with pytest.raises(NotAdmitted) as never:
                await weir.acquire("httpx", cost=3)
            assert never.value.decision.status == 422
            with pytest.raises(httpx.HTTPStatusError):
                await weir.check("a\nb")

    asyncio.run(story())


def test_the_dependency_passes_refusals_on_and_survives_without_weir() -> None:
    async def story() -> None:
        async with Weir(WEIR, timeout=20) as weir, Weir("http://127.0.0.1:9", timeout=2) as nobody:
            app = FastAPI()
            for path, asked, fail_open in (("/here", weir, True), ("/open", nobody, True), ("/closed", nobody, False)):
                dependency = limit(asked, lambda request: request.headers.get("user"), cost=2, fail_open=fail_open)
                app.get(path, dependencies=[Depends(dependency)])(lambda: "ok")
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://app", headers={"user": "fastapi"}) as http:
                answers = [await http.get("/here"), await http.get("/here")]
                assert [answer.status_code for answer in answers] == [200, 429]
                assert "ratelimit" in answers[0].headers and int(answers[1].headers["retry-after"]) >= 1
                assert (await http.get("/open")).status_code == 200
                assert (await http.get("/closed")).status_code == 503

    asyncio.run(story())


def test_the_openai_client_waits_what_retry_after_ms_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="openai._base_client")
    times: list[float] = []
    answers: list[httpx.Response] = []

    def sent(_: httpx.Request) -> None:
        times.append(time.monotonic())

    hooks = {"request": [sent], "response": [answers.append]}
    client = openai.OpenAI(api_key="sk-test", base_url=f"{PROGRAM}/v1", max_retries=2, http_client=httpx.Client(event_hooks=hooks, timeout=20))
    ask = lambda: client.chat.completions.create(model="stub", messages=[{"role": "user", "content": "hello"}])
    # Each question costs 2: the second is refused once.
    assert ask().choices[0].message.content == "stub"
    assert ask().choices[0].message.content == "stub"
    assert [answer.status_code for answer in answers] == [200, 429, 200], "exactly one retry"
    refused = answers[1]
    wait = int(refused.headers["retry-after-ms"]) / 1000
    waited = times[2] - times[1]
    assert wait - 0.005 <= waited, f"waited {waited}, told {wait}"
    # Not the whole second of Retry-After, and not the client's own guess of half a second and more: it says itself what it waits.
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Retrying request in")]
    assert len(said) == 1 and f"in {wait:f} seconds" in said[0], f"{said}, told {wait}"
    assert wait < int(refused.headers["retry-after"])
    assert refused.headers["x-should-retry"] == "true"


SPIDER = """
import json, scrapy, sys
class Spider(scrapy.Spider):
    name = "polite"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {"scrapy_weir.WeirMiddleware": 560}, "WEIR_URL": sys.argv[1], "WEIR_USER": "scrapy",
                       "ROBOTSTXT_OBEY": False, "LOG_LEVEL": "WARNING", "TELNETCONSOLE_ENABLED": False, "DOWNLOAD_DELAY": 0}
    async def start(self):
        for page in range(4):
            yield scrapy.Request(f"{sys.argv[2]}/page/{page}", headers={"Authorization": "Bearer crawler"})
    def parse(self, response):
        print(json.dumps([response.url, response.status, response.meta.get("weir_retries", 0)]), flush=True)
from scrapy.crawler import CrawlerProcess
process = CrawlerProcess()
process.crawl(Spider)
process.start()
"""


def test_scrapy_asks_first_and_honours_the_sites_own_429() -> None:
    ran = subprocess.run([sys.executable, "-c", SPIDER, WEIR, PROGRAM], cwd=HERE, capture_output=True, text=True, timeout=240)
    pages = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(pages) == 4 and all(status == 200 for _, status, _ in pages), ran.stderr
    # The site takes 2 a page of the same limits: without honouring its 429 not all pages would be there.
    assert sum(retries for _, _, retries in pages) >= 1, ran.stdout


def test_the_shell_script_waits_and_gives_up() -> None:
    script = HERE.parent / "check.sh"
    run = lambda *arguments: subprocess.run([script, *arguments], env={**os.environ, "WEIR_URL": WEIR}, capture_output=True, text=True, timeout=120)
    assert [run("shell user", "2").returncode for _ in range(2)] == [0, 0]
    never = run("shell user", "3")
    assert never.returncode == 1 and "422" in never.stderr
