"""Chains and reusable jobs over HTTP: /api/v1/chains and /api/v1/jobs."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from platform_defs.access.principal import Principal
from platform_defs.api.chains import bodies, routing
from platform_defs.api.chains.answers import chain_answer, job_answer, page_answer
from platform_defs.api.chains.bodies import OptionalJsonBody, parse_body, request_key
from platform_defs.api.chains.routing import START, answered, caller_of, service_of
from platform_defs.api.http.auth import RequiresScope
from platform_defs.api.http.bodies import JsonBody
from platform_defs.api.http.paths import path_id
from platform_defs.chains import definitions as chains
from platform_defs.chains import job_definitions as jobs

CHAIN = f"/chains/{path_id('chain_id')}"
JOB = f"/jobs/{path_id('job_id')}"

Reader = Annotated[Principal, Depends(RequiresScope("chain:read"))]
Writer = Annotated[Principal, Depends(RequiresScope("chain:write"))]
Starter = Annotated[Principal, Depends(RequiresScope(*START))]

router = APIRouter(prefix="/api/v1", tags=["chains"])


# -- chains ---------------------------------------------------------------------------------------------------------


def create_chain(request: Request, caller: Writer, body: JsonBody) -> dict[str, Any]:
    new, service = parse_body(bodies.NewChain, body), service_of(request)
    key = request_key(request, caller_of(caller), "create chain", body)
    made = answered(
        lambda: chains.create_chain(
            service.engine,
            service.types,
            name=new.name,
            description=new.description,
            dag_json=new.dag_json,
            enabled=new.enabled is not False,
            actor=caller.name,
            request_key=key,
        )
    )
    return chain_answer(made)


def list_chains(
    request: Request,
    caller: Reader,
    page: routing.PageNumber = 1,
    size: routing.PageSize = 20,
    keyword: routing.Keyword = None,
    enabled: routing.Enabled = None,
) -> dict[str, Any]:
    wanted, engine = routing.parse_enabled(enabled), service_of(request).engine
    return page_answer(chains.page_of_chains(engine, page=page, size=size, keyword=keyword, enabled=wanted))


def get_chain(request: Request, caller: Reader, chain_id: str) -> dict[str, Any]:
    return chain_answer(answered(lambda: chains.get_chain(service_of(request).engine, chain_id)))


def update_chain(request: Request, caller: Writer, chain_id: str, body: JsonBody) -> dict[str, Any]:
    changed, service = parse_body(bodies.ChangedChain, body), service_of(request)
    present = answered(lambda: chains.get_chain(service.engine, chain_id))
    routing.refuse_other_enabled(changed.enabled, present.enabled)
    updated = answered(
        lambda: chains.update_chain(
            service.engine,
            service.types,
            chain_id,
            name=changed.name,
            description=changed.description,
            dag_json=changed.dag_json,
            version=changed.version,
            actor=caller.name,
        )
    )
    return chain_answer(updated)


def enable_chain(request: Request, caller: Writer, chain_id: str) -> dict[str, Any]:
    return _set_chain_enabled(request, caller, chain_id, True)


def disable_chain(request: Request, caller: Writer, chain_id: str) -> dict[str, Any]:
    return _set_chain_enabled(request, caller, chain_id, False)


def _set_chain_enabled(request: Request, caller: Principal, chain_id: str, enabled: bool) -> dict[str, Any]:
    engine = service_of(request).engine
    return chain_answer(answered(lambda: chains.set_chain_enabled(engine, chain_id, enabled, actor=caller.name)))


def start_chain(request: Request, caller: Starter, chain_id: str, body: OptionalJsonBody) -> dict[str, Any]:
    return _start(request, caller, "chain", chain_id, body)


# -- jobs -----------------------------------------------------------------------------------------------------------


def create_job(request: Request, caller: Writer, body: JsonBody) -> dict[str, Any]:
    new, service = parse_body(bodies.NewJob, body), service_of(request)
    key = request_key(request, caller_of(caller), "create job", body)
    made = answered(
        lambda: jobs.create_job(
            service.engine,
            service.types,
            name=new.name,
            description=new.description,
            type_name=new.type,
            config_json=new.config_json,
            enabled=new.enabled is not False,
            actor=caller.name,
            request_key=key,
        )
    )
    return job_answer(made)


def list_jobs(
    request: Request,
    caller: Reader,
    page: routing.PageNumber = 1,
    size: routing.PageSize = 20,
    keyword: routing.Keyword = None,
    enabled: routing.Enabled = None,
) -> dict[str, Any]:
    wanted, engine = routing.parse_enabled(enabled), service_of(request).engine
    return page_answer(jobs.page_of_jobs(engine, page=page, size=size, keyword=keyword, enabled=wanted))


def get_job(request: Request, caller: Reader, job_id: str) -> dict[str, Any]:
    return job_answer(answered(lambda: jobs.get_job(service_of(request).engine, job_id)))


def update_job(request: Request, caller: Writer, job_id: str, body: JsonBody) -> dict[str, Any]:
    changed, service = parse_body(bodies.ChangedJob, body), service_of(request)
    present = answered(lambda: jobs.get_job(service.engine, job_id))
    routing.refuse_other_enabled(changed.enabled, present.enabled)
    updated = answered(
        lambda: jobs.update_job(
            service.engine,
            service.types,
            job_id,
            name=changed.name,
            description=changed.description,
            type_name=changed.type,
            config_json=changed.config_json,
            version=changed.version,
            actor=caller.name,
        )
    )
    return job_answer(updated)


def enable_job(request: Request, caller: Writer, job_id: str) -> dict[str, Any]:
    return _set_job_enabled(request, caller, job_id, True)


def disable_job(request: Request, caller: Writer, job_id: str) -> dict[str, Any]:
    return _set_job_enabled(request, caller, job_id, False)


def _set_job_enabled(request: Request, caller: Principal, job_id: str, enabled: bool) -> dict[str, Any]:
    engine = service_of(request).engine
    return job_answer(answered(lambda: jobs.set_job_enabled(engine, job_id, enabled, actor=caller.name)))


def start_job(request: Request, caller: Starter, job_id: str, body: OptionalJsonBody) -> dict[str, Any]:
    return _start(request, caller, "job", job_id, body)


def _start(request: Request, caller: Principal, noun: str, object_id: str, body: Any) -> dict[str, Any]:
    params, service = parse_body(bodies.Start, body).params, service_of(request)
    key = request_key(request, caller_of(caller), f"start {noun} {object_id}", body)
    return {"runId": answered(lambda: service.start(noun, object_id, params, caller.name, key))}


# -- paths ----------------------------------------------------------------------------------------------------------

_READ, _WRITE = ("chain:read",), ("chain:write",)
_VERSION = "The version is not the present one: somebody else changed it"
_KEY = "The Idempotency-Key was used with another body"
_CANNOT_START = "It is disabled, a job of it is missing or disabled, or the Idempotency-Key was used with another body"

_add = routing.add_path
_add(
    router,
    "POST",
    "/chains",
    create_chain,
    _WRITE,
    "Create a chain",
    body=bodies.NewChain,
    body_required=True,
    keyed=True,
    conflict=_KEY,
)
_add(router, "GET", "/chains", list_chains, _READ, "List chains, page by page")
_add(router, "GET", CHAIN, get_chain, _READ, "Read a chain")
_add(
    router,
    "PUT",
    CHAIN,
    update_chain,
    _WRITE,
    "Change a chain, by its version",
    body=bodies.ChangedChain,
    body_required=True,
    conflict=_VERSION,
)
_add(router, "POST", CHAIN + ":enable", enable_chain, _WRITE, "Enable a chain")
_add(router, "POST", CHAIN + ":disable", disable_chain, _WRITE, "Disable a chain")
_add(
    router,
    "POST",
    CHAIN + ":start",
    start_chain,
    START,
    "Start a run of a chain",
    body=bodies.Start,
    keyed=True,
    conflict=_CANNOT_START,
)
_add(
    router,
    "POST",
    "/jobs",
    create_job,
    _WRITE,
    "Create a reusable job, which nodes name by jobId",
    body=bodies.NewJob,
    body_required=True,
    keyed=True,
    conflict=_KEY,
)
_add(router, "GET", "/jobs", list_jobs, _READ, "List jobs, page by page")
_add(router, "GET", JOB, get_job, _READ, "Read a job")
_add(
    router,
    "PUT",
    JOB,
    update_job,
    _WRITE,
    "Change a job, by its version",
    body=bodies.ChangedJob,
    body_required=True,
    conflict=_VERSION,
)
_add(router, "POST", JOB + ":enable", enable_job, _WRITE, "Enable a job")
_add(router, "POST", JOB + ":disable", disable_job, _WRITE, "Disable a job")
_add(
    router,
    "POST",
    JOB + ":start",
    start_job,
    START,
    "Start a run of one node that does this job",
    body=bodies.Start,
    keyed=True,
    conflict=_CANNOT_START,
)
