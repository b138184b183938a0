"""Shows jobs and sweeps in notebooks: tables and curves as HTML without scripts. All texts are escaped."""

from __future__ import annotations

import html
import math
from typing import Any, List, Mapping, Sequence, Tuple

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 420, 140, 48, 18
_ROWS_MAX = 200
_CELL = "text-align:left;padding:2px 10px 2px 0;vertical-align:top"


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)


def _row(name: str, value: object) -> str:
    return f'<tr><th style="{_CELL}">{_text(name)}</th><td style="{_CELL}">{_text(value)}</td></tr>'


def curve(name: str, points: Sequence[Tuple[int, float]]) -> str:
    """A curve as SVG. Values that are no finite numbers are left out."""
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if not finite:
        return ""
    steps, values = [p[0] for p in finite], [p[1] for p in finite]
    low, high = min(values), max(values)
    span_x = (max(steps) - min(steps)) or 1
    span_y = (high - low) or 1.0
    inner_w, inner_h = _WIDTH - _LEFT - 8, _HEIGHT - _BOTTOM - 18

    def place(step: int, value: float) -> str:
        x = _LEFT + inner_w * (step - min(steps)) / span_x
        y = 16 + inner_h * (1 - (value - low) / span_y)
        return f"{x:.1f},{y:.1f}"

    line = " ".join(place(step, value) for step, value in finite)
    label = 'font-size="10" font-family="sans-serif" fill="currentColor"'
    return (f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{_text(name)}">'
            f'<text x="{_LEFT}" y="11" {label}>{_text(name)}</text>'
            f'<text x="{_LEFT - 4}" y="22" text-anchor="end" {label}>{high:.4g}</text>'
            f'<text x="{_LEFT - 4}" y="{16 + inner_h}" text-anchor="end" {label}>{low:.4g}</text>'
            f'<text x="{_LEFT}" y="{_HEIGHT - 5}" {label}>{min(steps)}</text>'
            f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 5}" text-anchor="end" {label}>step {max(steps)}</text>'
            f'<polyline points="{line}" fill="none" stroke="#2563eb" stroke-width="1.5"/></svg>')


def failure(name: str, why: str) -> str:
    return f"<p><b>{_text(name)}</b>: {_text(why)}</p>"


def job(name: str, state: str, data: Mapping[str, Any], metric: str, points: Sequence[Tuple[int, float]]) -> str:
    """One job as a table with its curve."""
    progress = data.get("progress") or {}
    rows = [_row("state", state), _row("user", data.get("user", ""))]
    if progress.get("step"):
        total = progress.get("total_steps")
        rows.append(_row("step", f"{progress['step']}{' of ' + str(total) if total else ''}"))
    for reason in data.get("queue_reasons") or []:
        rows.append(_row("waits" if data.get("state") == "JOB_STATE_QUEUED" else "contact", reason))
    if data.get("failure"):
        rows.append(_row("failure", data["failure"].get("message", "")))
    for key, value in sorted((data.get("final_metrics") or {}).items()):
        rows.append(_row(key, f"{float(value):.6g}"))
    title = (data.get("spec") or {}).get("name", "")
    return (f"<div><p><b>{_text(name)}</b> {_text(title)}</p><table>{''.join(rows)}</table>{curve(metric, points)}</div>")


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of texts, of which a long one is cut off."""
    titles = "".join(f'<th style="{_CELL}">{_text(name)}</th>' for name in head)
    body = "".join("<tr>" + "".join(f'<td style="{_CELL}">{_text(cell)}</td>' for cell in row) + "</tr>"
                   for row in rows[:_ROWS_MAX])
    hidden = len(rows) - _ROWS_MAX
    if hidden > 0:
        body += f'<tr><td style="{_CELL}" colspan="{len(head)}">and {hidden:,} more</td></tr>'
    return f"<table><tr>{titles}</tr>{body}</table>"


def sweep(name: str, state: str, data: Mapping[str, Any], head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A sweep with the table of its trials."""
    lines = [_row("state", state), _row("user", data.get("user", "")),
             _row("trials", f"{data.get('trials_begun', 0)} of {data.get('trials_total', 0)} begun, "
                            f"{data.get('trials_ended', 0)} ended")]
    if data.get("reason"):
        lines.append(_row("reason", data["reason"]))
    return (f"<div><p><b>{_text(name)}</b> {_text(data.get('title', ''))}</p><table>{''.join(lines)}</table>"
            f"{_table(head, rows) if rows else ''}</div>")


def jobs(rows: List[Tuple[str, str, Mapping[str, Any]]]) -> str:
    """Several jobs as a table."""
    return _table(("job", "name", "state", "user", "step"), [
        (name, (data.get("spec") or {}).get("name", ""), state, data.get("user", ""),
         (data.get("progress") or {}).get("step", "")) for name, state, data in rows])
