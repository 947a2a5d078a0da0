"""Numbers of a server, in the text format that Prometheus reads."""

from __future__ import annotations

from collections import defaultdict

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Requests by route and status, their time, and what is under way."""

    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._times: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
        self._sums: defaultdict[str, float] = defaultdict(float)
        self.under_way = 0
        self.following = 0

    def count(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count a request that was answered."""
        self._requests[method, route, status] += 1
        self._sums[route] += took_s
        place = next((at for at, most in enumerate(BUCKETS_S) if took_s <= most), len(BUCKETS_S))
        self._times[route][place] += 1

    def text(self, stores: dict[str, int]) -> str:
        """Return all numbers as text; `stores` are the newest commits of the open ones."""
        lines = ["# TYPE dgent_requests_total counter"]
        lines += [
            f'dgent_requests_total{{method="{method}",route="{_escape(route)}",status="{status}"}} {number}'
            for (method, route, status), number in sorted(self._requests.items())
        ]
        lines.append("# TYPE dgent_request_seconds histogram")
        for route, counts in sorted(self._times.items()):
            name, total = _escape(route), 0
            for most, number in zip((*BUCKETS_S, "+Inf"), counts, strict=True):
                total += number
                lines.append(f'dgent_request_seconds_bucket{{route="{name}",le="{most}"}} {total}')
            lines.append(f'dgent_request_seconds_sum{{route="{name}"}} {self._sums[route]:.6f}')
            lines.append(f'dgent_request_seconds_count{{route="{name}"}} {total}')
        lines += [
            "# TYPE dgent_requests_under_way gauge",
            f"dgent_requests_under_way {self.under_way}",
            "# TYPE dgent_followers gauge",
            f"dgent_followers {self.following}",
            "# TYPE dgent_newest_commit gauge",
        ]
        lines += [
            f'dgent_newest_commit{{constellation="{_escape(name)}"}} {seq}' for name, seq in stores.items()
        ]
        return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
