"""Fits how fast a measure grows with the number of jobs, and draws the measures as curves.

A process that was restarted begins a new life: its curve starts again somewhere else, but it grows at the same rate if it
grows at all. So one slope is fitted for all lives, and each life has a level of its own.
"""
import collections
import math

# What a measure may grow by for 1,000 jobs. Memory: a submission leaves its request id in the server, of some hundred
# bytes; the page caches of the two databases, of 2 MiB each, fill during the first 20,000 jobs of a life; and allocators
# keep some pages. Descriptors and threads: a leak is one a job, or one a contact. Disk: a deleted job leaves its request
# and one event in the database, and a worker removes run directories half a minute late.
Measure = collections.namedtuple("Measure", "key title unit scale bound")
MEASURES = [
    Measure("memory_bytes", "memory", "MiB", 2**20, 1.0),
    Measure("descriptors", "open descriptors", "", 1, 1.0),
    Measure("threads", "threads", "", 1, 1.0),
    Measure("disk_bytes", "disk", "MiB", 2**20, 1.0),
]

# A trend over fewer jobs proves nothing.
JOBS_MIN = 1000

Sample = collections.namedtuple("Sample", "seconds jobs process life memory_bytes descriptors threads disk_bytes")
Trend = collections.namedtuple("Trend", "slope error samples first last highest")


def fit(points, lives):
    """Least squares with one slope for all lives and a level for each: (slope, standard error)."""
    groups = collections.defaultdict(list)
    for (x, y), life in zip(points, lives):
        groups[life].append((x, y))
    square_x = product = square_y = 0.0
    count = 0
    for group in groups.values():
        mean_x = sum(x for x, _ in group) / len(group)
        mean_y = sum(y for _, y in group) / len(group)
        square_x += sum((x - mean_x)**2 for x, _ in group)
        square_y += sum((y - mean_y)**2 for _, y in group)
        product += sum((x - mean_x) * (y - mean_y) for x, y in group)
        count += len(group) - 1
    if square_x == 0 or count < 2:
        return 0.0, math.inf
    slope = product / square_x
    rest = max(0.0, square_y - slope * product)
    return slope, math.sqrt(rest / (count - 1) / square_x)


def trend(samples, measure, warm_up):
    """The growth of a measure of one process for 1,000 jobs, without the first `warm_up` seconds of each life. Disk
    outlives processes, so all of it is one life."""
    begin = {}
    for sample in samples:
        begin.setdefault(sample.life, sample.seconds)
    is_disk = measure.key == "disk_bytes"
    kept = [s for s in samples if s.seconds - (samples[0].seconds if is_disk else begin[s.life]) >= warm_up]
    values = [getattr(s, measure.key) / measure.scale for s in kept]
    if not values:
        return None
    if kept[-1].jobs - kept[0].jobs < JOBS_MIN:
        return Trend(0.0, math.inf, len(kept), values[0], values[-1], max(values))
    slope, error = fit([(s.jobs / 1000, y) for s, y in zip(kept, values)], [0 if is_disk else s.life for s in kept])
    return Trend(slope, error, len(kept), values[0], values[-1], max(values))


def grows(found, measure):
    """True if the measure grows by more than its bound with all likelihood: by two standard errors."""
    return found.slope - 2 * found.error > measure.bound


def verdict(found, measure):
    if math.isinf(found.error):
        return "too few jobs"
    if grows(found, measure):
        return "grows"
    return "flat" if found.slope + 2 * found.error <= measure.bound else "unclear"


COLORS = ["#1f5fa8", "#c2571a", "#2d7d46", "#7a4fa3", "#666666"]
WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 900, 170, 70, 20, 60, 34


def round_up(value):
    """The next of 1, 2, 5, 10, 20, ... that is not below the value."""
    size = 10.0**math.floor(math.log10(max(value, 1e-9)))
    return next(step * size for step in (1, 2, 5, 10) if step * size >= value)


def number(value):
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def panel(measure, samples, top, last):
    """One measure of all processes over time."""
    most = round_up(max(getattr(s, measure.key) / measure.scale for s in samples))
    x = lambda seconds: LEFT + (WIDTH - LEFT - RIGHT) * seconds / last
    y = lambda value: top + PANEL * (1 - value / most)
    title = measure.title + (f", {measure.unit}" if measure.unit else "")
    out = [f'<text x="{LEFT}" y="{top - 8}" class="t">{title}</text>']
    for part in range(5):
        value = most * part / 4
        out.append(f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}" class="g"/>'
                   f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{number(value)}</text>')
    names = sorted({s.process for s in samples})
    for color, name in zip(COLORS, names):
        lives = collections.defaultdict(list)
        for s in samples:
            if s.process == name:
                lives[s.life].append(f"{x(s.seconds):.1f},{y(getattr(s, measure.key) / measure.scale):.1f}")
        for points in lives.values():
            out.append(f'<polyline points="{" ".join(points)}" stroke="{color}"/>')
    return out


def draw(samples, title):
    """A complete SVG: one panel for each measure, one curve for each life of each process."""
    last = max(max(s.seconds for s in samples), 1)
    height = TOP + len(MEASURES) * (PANEL + GAP) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
           '<style>text{fill:#222}.t{font-weight:bold}.g{stroke:#ddd}polyline{fill:none;stroke-width:1.4}</style>',
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', f'<text x="{LEFT}" y="20" class="t">{title}</text>']
    for i, (color, name) in enumerate(zip(COLORS, sorted({s.process for s in samples}))):
        at = WIDTH - RIGHT - 130 * (i + 1)
        out.append(f'<line x1="{at}" y1="16" x2="{at + 22}" y2="16" stroke="{color}" stroke-width="3"/>'
                   f'<text x="{at + 28}" y="20">{name}</text>')
    for i, measure in enumerate(MEASURES):
        out += panel(measure, samples, TOP + i * (PANEL + GAP), last)
    bottom = height - 18
    for part in range(5):
        at = LEFT + (WIDTH - LEFT - RIGHT) * part / 4
        out.append(f'<text x="{at:.1f}" y="{bottom}" text-anchor="middle">{last * part / 4 / 60:.0f} min</text>')
    return "\n".join(out + ["</svg>", ""])
