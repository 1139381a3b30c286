"""Events as signed HTTP requests: Standard Webhooks headers around a CloudEvents body, one event a request."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin, urlsplit

import httpx
from standardwebhooks.webhooks import Webhook

from evolver.errors import UsageError
from evolver.events.reader import Record
from evolver.sinks.base import GoneError, RefusedError, SinkError

TIMEOUT_S = 5.0
REDIRECTS = 5
ANSWER = 64 << 10  # bytes of an answer that are read
# What says that this very event will never be taken. Anything else may be a bad deployment: the log is the spool, so wait.
_REFUSED = frozenset({400, 413, 415, 422})


class WebhookSink:
    """`webhook-id` is the event's id, so a receiver that sees one twice knows."""

    def __init__(self, url: str, secret: str | None) -> None:
        """Raise `UsageError` for a URL or a secret that cannot be used."""
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise UsageError("sink webhook: its url is no http(s) URL", "Such as https://example.org/hook")
        self._url = url
        try:
            self._webhook = Webhook(secret) if secret else None
        except (ValueError, RuntimeError) as error:
            raise UsageError(
                f"sink webhook: its secret cannot be used: {error}", "It is base64, usually after `whsec_`."
            ) from None
        self._client = httpx.Client(timeout=TIMEOUT_S, follow_redirects=False, trust_env=True)

    def deliver(self, record: Record) -> None:
        url = self._url
        try:
            for _ in range(REDIRECTS):
                with self._client.stream("POST", url, content=record.line, headers=self._headers(record)) as answer:
                    _read_some(answer)
                if not answer.has_redirect_location:
                    break
                url = self._followed(url, answer)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # ValueError: a Location that is no URL
            raise SinkError(f"{self._shown(url)}: {type(error).__name__}") from error
        if answer.is_success:
            return
        told = f"{self._shown(url)}: HTTP {answer.status_code}"
        if answer.status_code == 410:
            raise GoneError(told)
        if answer.status_code in _REFUSED:
            raise RefusedError(told)
        raise SinkError(told, retry_after_ms=_retry_after(answer))

    def _headers(self, record: Record) -> dict[str, str]:
        headers = {"content-type": "application/cloudevents+json; charset=utf-8", "user-agent": "evolver"}
        if self._webhook is not None:
            now = datetime.now(UTC)
            identifier = record.envelope.id
            headers |= {
                "webhook-id": identifier,
                "webhook-timestamp": str(int(now.timestamp())),
                "webhook-signature": self._webhook.sign(identifier, now, record.line.decode()),
            }
        return headers

    def _followed(self, url: str, answer: httpx.Response) -> str:
        """Where a redirect leads; the event is posted there as it is, but never from https to plain http."""
        target = urljoin(url, answer.headers["location"])
        if urlsplit(target).scheme not in ("http", "https") or (urlsplit(url).scheme, urlsplit(target).scheme) == (
            "https",
            "http",
        ):
            raise SinkError(f"{self._shown(url)}: redirected to a place that is not followed")
        return target

    def _shown(self, url: str) -> str:
        """Without path and query: a webhook's URL is often its secret."""
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"

    def close(self) -> None:
        self._client.close()


def _read_some(answer: httpx.Response) -> None:
    """A short answer to its end, so that the connection can be used again; an endless one is hung up on."""
    read = 0
    with contextlib.suppress(httpx.HTTPError):  # the status was told: what comes after it changes nothing
        for chunk in answer.iter_raw():
            read += len(chunk)
            if read > ANSWER:
                return


def _retry_after(answer: httpx.Response) -> int | None:
    """Seconds, or a date; the forwarder bounds it. What is neither counts as not said."""
    said = answer.headers.get("retry-after", "").strip()
    with contextlib.suppress(ValueError, OverflowError):
        return int(float(said) * 1000)
    with contextlib.suppress(ValueError, OverflowError):
        moment = parsedate_to_datetime(said)
        return int((moment - datetime.now(UTC)).total_seconds() * 1000)
    return None
