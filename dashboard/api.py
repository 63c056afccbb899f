"""Runs as JSON: `/api/runs` and `/api/runs/<id>`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

from dashboard.filters import parse_filters
from dashboard.markdown_report import json_report
from dashboard.plain import without_folder
from dashboard.run_choice import check_names
from harness.errors import StoreError, UsageError
from harness.record.store import Store, check_run_id

if TYPE_CHECKING:
    from starlette.requests import Request

    from dashboard.facets import Facets
    from dashboard.settings import Settings
    from dashboard.snapshot import SnapshotCache

MAX_LISTED = 1_000


def routes(settings: Settings, cache: SnapshotCache) -> list[Route]:
    """The routes; none where a login guards the pages, for these have no login of their own."""
    if settings.needs_login:
        return []

    async def runs(request: Request) -> Response:
        return await run_in_threadpool(_listing, cache, request)

    async def run(request: Request) -> Response:
        return await run_in_threadpool(_run, settings.store, request.path_params["run_id"])

    async def report(request: Request) -> Response:
        return await run_in_threadpool(_report, cache, request)

    return [
        Route("/api/runs", runs),
        Route("/api/runs/{run_id}", run),
        Route("/api/report", report),
    ]


def _listing(cache: SnapshotCache, request: Request) -> Response:
    try:
        filters = parse_filters(_query(request))
        snapshot = cache.get()
        check_names(snapshot.facets, filters)
    except UsageError as error:
        return _json({"error": str(error)}, 400)
    except StoreError as error:
        return _json({"error": without_folder(error, cache.root)}, 503)
    positions = snapshot.positions(filters)
    facets = [_facts(snapshot.facets[position]) for position in positions[:MAX_LISTED]]
    problems = [{"name": one.name, "reason": one.reason} for one in snapshot.problems]
    return _json({"num_runs": len(positions), "runs": facets, "problems": problems})


def _facts(facets: Facets) -> dict[str, Any]:
    """What a run can be chosen by; how its figures rank is no matter of other programs."""
    return {
        field.name: getattr(facets, field.name)
        for field in fields(facets)
        if not field.name.endswith("_voices")
    }


def _run(root: str, run_id: str) -> Response:
    try:
        check_run_id(run_id)
        return _json(Store(root).read(run_id))
    except StoreError as error:
        return _json({"error": without_folder(error, root)}, 404)


def _report(cache: SnapshotCache, request: Request) -> Response:
    try:
        filters = parse_filters(_query(request))
        snapshot = cache.get()
        check_names(snapshot.facets, filters)
        records = snapshot.select(filters, MAX_LISTED)
    except UsageError as error:
        return _json({"error": str(error)}, 400)
    except StoreError as error:
        return _json({"error": without_folder(error, cache.root)}, 503)
    return Response(json_report(records), media_type="application/json")


def _query(request: Request) -> dict[str, list[str]]:
    return {key: request.query_params.getlist(key) for key in request.query_params}


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type="application/json")
