"""`cohortflow serve-models`: the model server for clients of Triton, until it is told to stop."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

if TYPE_CHECKING:
    from serving.protocol.endpoint import Endpoint
    from serving.server import ModelServer

TOKEN_VARIABLE = "COHORTFLOW_SERVING_TOKEN"  # noqa: S105 - a name
_OK, _FAILED, _BAD_INPUT, _CANCELLED = 0, 1, 2, 130
_MIB = 1 << 20
_PORT = click.IntRange(0, 65535)
_PEM = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(
    "serve-models",
    short_help="Serve the models of REPOSITORY to clients of Triton.",
    epilog="Exit codes: 0 stopped by SIGTERM or Ctrl-C, with every request in flight answered; 1 a model or a port "
    f"cannot be served; 2 a flag is wrong; 130 a second signal came first. {TOKEN_VARIABLE} in the environment is the "
    "token that clients must send as 'authorization: Bearer TOKEN'.",
)
@click.argument("repository", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help=f"Address to listen on; beyond this machine {TOKEN_VARIABLE}, --tls-certificate and --tls-key are needed.",
)
@click.option("--http-port", type=_PORT, default=8000, show_default=True, help="KServe v2 over HTTP; 0: any free port.")
@click.option("--grpc-port", type=_PORT, default=8001, show_default=True, help="KServe v2 over gRPC; 0: any free port.")
@click.option("--metrics-port", type=_PORT, default=8002, show_default=True, help="/metrics for Prometheus; 0: any.")
@click.option(
    "--control",
    type=click.Choice(["none", "explicit", "poll"]),
    default="none",
    show_default=True,
    help="none: all models, as they are now. poll: all, and what changes in the folder. explicit: those of "
    "--load-model, and those that clients load.",
)
@click.option(
    "--allow-control",
    is_flag=True,
    help=f"Clients may load and unload models, with files of their own: needs {TOKEN_VARIABLE}.",
)
@click.option("--load-model", "models", multiple=True, metavar="NAME", help="With --control explicit; several times.")
@click.option("--redis", metavar="URL", help="Cache of rows seen before  [or COHORTFLOW_REDIS_URL].")
@click.option(
    "--threads", type=click.IntRange(1, 1024), default=1, show_default=True, help="CPU threads of an execution."
)
@click.option(
    "--max-request-mib", type=click.IntRange(1, 2000), default=64, show_default=True, help="Largest request, in MiB."
)
@click.option("--tls-certificate", type=_PEM, help="Certificate chain, PEM.")
@click.option("--tls-key", type=_PEM, help="Its key, PEM.")
def serve_models(
    repository: Path,
    host: str,
    http_port: int,
    grpc_port: int,
    metrics_port: int,
    control: Literal["none", "explicit", "poll"],
    allow_control: bool,
    models: tuple[str, ...],
    redis: str | None,
    threads: int,
    max_request_mib: int,
    tls_certificate: Path | None,
    tls_key: Path | None,
) -> None:
    """Serve the models of REPOSITORY to clients of Triton: KServe v2 over HTTP and gRPC.

    REPOSITORY is a model repository in Triton's layout. It says what is loaded and where it listens, and serves until
    SIGTERM or Ctrl-C; requests in flight are then finished.
    """
    from serving.errors import InvalidArgumentError, ServingError
    from serving.protocol.endpoint import Endpoint, Listening, Tls
    from serving.repository import list_models
    from serving.server import ModelServer

    if (allow_control or models) and control != "explicit":
        _end(_BAD_INPUT, "--allow-control and --load-model need --control explicit")
    if control == "explicit" and not (allow_control or models):
        _end(_BAD_INPUT, "--control explicit needs --load-model, --allow-control or both: else no model is ever loaded")
    # Taken out: programs that a model starts have no use for it.
    token = os.environ.pop(TOKEN_VARIABLE, None)
    if allow_control and token is None:
        _end(_BAD_INPUT, f"--allow-control needs {TOKEN_VARIABLE}: clients that load models run code as this user")
    if (tls_certificate is None) != (tls_key is None):
        _end(_BAD_INPUT, "--tls-certificate and --tls-key belong together")
    listening = Listening(
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        tls=None if tls_certificate is None or tls_key is None else Tls(tls_certificate, tls_key),
        token=token,
        allow_control=allow_control,
        max_request_bytes=max_request_mib * _MIB,
    )
    server = ModelServer(
        repository,
        threads=threads,
        models=models if control == "explicit" else None,
        redis_url=redis or os.environ.get("COHORTFLOW_REDIS_URL"),
        control=control,
    )
    try:
        if control == "none" and not list_models(repository):
            _end(_FAILED, f"{repository} has no model: it must hold a folder for each, with its config.pbtxt")
        _serve(server, Endpoint(server, listening), host)
    except InvalidArgumentError as error:
        _end(_BAD_INPUT, error.message)
    except ServingError as error:
        _end(_FAILED, error.message)
    except KeyboardInterrupt:
        _end(_CANCELLED, "stopped at once")


def _serve(server: ModelServer, endpoint: Endpoint, host: str) -> None:
    """Serves until a signal; one that comes while models are loaded raises KeyboardInterrupt, a second one ends all."""
    stop = threading.Event()
    is_serving = False

    def on_signal(number: int, frame: object) -> None:
        if not is_serving:
            raise KeyboardInterrupt
        if stop.is_set():
            # Threads that compute would be waited for, whatever is raised here.
            os.write(2, b"cohortflow: stopped at once\n")
            os._exit(_CANCELLED)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    with server:
        for entry in server.index():
            click.echo(f"model {entry.name} {entry.version} {entry.state} {entry.reason}".rstrip())
        with endpoint:
            where = f"[{host}]" if ":" in host else host
            click.echo(f"HTTP {where}:{endpoint.http_port}")
            click.echo(f"gRPC {where}:{endpoint.grpc_port}")
            click.echo(f"metrics {where}:{endpoint.metrics_port}/metrics")
            is_serving = True
            stop.wait()
            server.drain()
            click.echo("stopping: requests in flight are finished")


def _end(code: int, message: str) -> NoReturn:
    click.echo(f"cohortflow: {message}", err=True)
    raise SystemExit(code)
