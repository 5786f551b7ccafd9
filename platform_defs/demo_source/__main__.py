"""Serves the demo source: prints its address as one line, then answers until it is stopped."""

import argparse
import signal
import sys
import threading
from contextlib import ExitStack
from datetime import date
from types import FrameType

from platform_defs.demo_source.receiver import open_receiver
from platform_defs.demo_source.server import DemoSettings, open_server, read_moment


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m platform_defs.demo_source", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--records", type=int, default=6000, help="records in 60 days")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--now", type=read_moment, help="stops the source's clock at this time")
    parser.add_argument("--rate", type=float, help="requests a second; more are answered with 429")
    parser.add_argument("--burst", type=int, default=5)
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--cap", type=int, default=9999, help="records of one PubMed query that can be paged through")
    parser.add_argument("--short-day", type=date.fromisoformat, help="lists of works lack some of this day")
    parser.add_argument("--webhooks-on", metavar="HOST", help="receive webhooks there, at the same port")
    arguments = parser.parse_args()
    settings = DemoSettings(
        records=arguments.records,
        seed=arguments.seed,
        now=arguments.now,
        rate_per_s=arguments.rate,
        burst=arguments.burst,
        latency_s=arguments.latency_ms / 1000,
        pubmed_cap=arguments.cap,
        short_day=arguments.short_day,
    )
    server, url = open_server(settings, arguments.host, arguments.port)
    signal.signal(signal.SIGTERM, _stop)
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    with server, ExitStack() as stack:
        if arguments.webhooks_on:
            try:
                receiver = stack.enter_context(open_receiver(arguments.webhooks_on, server.server_address[1]))
            except OSError as error:
                # Not every system has more addresses of loopback than one.
                sys.stdout.write(f"no webhooks are received on {arguments.webhooks_on}: {error.strerror}\n")
                sys.stdout.flush()
            else:
                threading.Thread(target=receiver.serve_forever, daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
