"""The tables of bench_gpu.py, in Markdown, from its results."""
import statistics


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def header(*cells):
    return row(*cells) + "|" + "---|" * len(cells) + "\n"


def units(number):
    return f"{number:,.0f}"


def ratio(numerator, denominator):
    return f"{numerator / denominator:.2f}x" if numerator and denominator else ""


def best_peer(entry):
    """Returns form, ms and MiB of PyTorch's fastest form, or None if nothing ran."""
    measured = [(statistics.median(peer["ms"]), name, peer["mib"]) for name, peer in entry["peers"].items()]
    return min(measured) if measured else None


def rates_table(rates):
    text = f"## The card: {rates['device']}\n\n" + header("what", "rate")
    text += row("copies by the runtime", f"{rates['copy_bytes_per_second'] / 1e12:.3f} TB/s")
    text += row("copies by our kernel", f"{rates['kernel_bytes_per_second'] / 1e12:.3f} TB/s")
    for precision, rate in rates["flops_per_second"].items():
        text += row(f"matrix products in {precision}", f"{rate / 1e12:.1f} TFLOP/s")
    return text + row("node of a graph", f"{rates['seconds_per_node'] * 1e6:.2f} us") + "\n"


def main_table(results):
    text = f"## Steps in {results['precision']}, PyTorch {results.get('torch') or 'not measured'}\n\n"
    text += header("net:batch", "ours, ms", "images or tokens/s", "goal, ms", "of the goal's speed", "roofline, ms",
                   "of it", "PyTorch's best, ms", "its form", "ours faster", "MiB of ours", "MiB of PyTorch's best",
                   "of it", "nodes a step", "GB moved")
    for name, entry in results["nets"].items():
        if not entry["ours"] or not entry["ours_ms"]:
            text += row(name, "failed", *[""] * 13)
            continue
        ours, ms = entry["ours"], statistics.median(entry["ours_ms"])
        step_units = ours["units_per_second"] * ours["seconds_per_step"]
        goal, roofline = ours["goal_seconds"] * 1e3, ours["work"]["total"]["roofline_seconds"] * 1e3
        mib = ours["buffer_bytes"] / 2**20
        peer_ms, peer, peer_mib = best_peer(entry) or (0, "", 0)
        text += row(name, f"{ms:.4f}", units(step_units / ms * 1e3), f"{goal:.4f}" if goal else "", ratio(goal, ms),
                    f"{roofline:.4f}" if roofline else "", f"{100 * roofline / ms:.0f} %" if roofline else "",
                    f"{peer_ms:.4f}" if peer_ms else "", peer, ratio(peer_ms, ms), units(mib),
                    units(peer_mib) if peer_mib else "", ratio(mib, peer_mib), ours["graph_nodes"],
                    f"{ours['work']['total']['bytes'] / 1e9:.3f}")
    return text + "\n"


def peers_table(results):
    forms = sorted({name for entry in results["nets"].values() for name in entry["peers"]})
    if not forms:
        return ""
    text = "## PyTorch, ms a step, and how much faster ours is\n\n" + header("net:batch", *forms)
    for name, entry in results["nets"].items():
        ours = statistics.median(entry["ours_ms"]) if entry["ours_ms"] else 0
        cells = []
        for wanted in forms:
            peer = entry["peers"].get(wanted)
            ms = statistics.median(peer["ms"]) if peer else 0
            cells.append(f"{ms:.4f} ({ratio(ms, ours)})" if peer else "")
        text += row(name, *cells)
    return text + "\n"


def others_table(results):
    nets = {name: entry["others"] for name, entry in results["nets"].items() if entry.get("others")}
    forms = list(dict.fromkeys(wanted for others in nets.values() for wanted in others))
    if not forms:
        return ""
    text = "## Ours in other forms, ms a step\n\n" + header("net:batch", *forms)
    for name, others in nets.items():
        text += row(name, *(f"{others[wanted]['seconds_per_step'] * 1e3:.4f}" if wanted in others else ""
                            for wanted in forms))
    return text + "\n"


def ops_table(name, ours):
    work = ours["work"]
    text = f"## {name}: time by op, call by call\n\n"
    text += header("op", "calls", "us", "share", "GB/s", "TFLOP/s", "roofline, us", "of it")
    for part in work["ops"] + [work["total"]]:
        seconds, roofline = part["seconds"], part["roofline_seconds"]
        if seconds == 0:
            continue
        text += row(part["name"], part["calls"], f"{seconds * 1e6:.1f}",
                    f"{100 * seconds / work['total']['seconds']:.1f} %", f"{part['bytes'] / seconds / 1e9:.0f}",
                    f"{part['flops'] / seconds / 1e12:.1f}", f"{roofline * 1e6:.1f}",
                    f"{100 * roofline / seconds:.0f} %" if roofline else "")
    return text + "\n"


def render(results):
    """Returns all tables. `results` has the form in which bench_gpu.py keeps them."""
    text = rates_table(results["rates"]) if "rates" in results else ""
    text += main_table(results) + peers_table(results) + others_table(results)
    for name, entry in results["nets"].items():
        if entry["ours"]:
            text += ops_table(name, entry["ours"])
    if results["failures"]:
        text += "## What failed\n\n" + header("what", "why")
        for failure in results["failures"]:
            text += row(failure["what"], str(failure["why"]).replace("|", "/").replace("\n", " "))
    return text
