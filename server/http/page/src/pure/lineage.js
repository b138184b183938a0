// Makes a forest of the nodes of a lineage. A job that descends from several stands below the first of them.

const kKinds = {
  LINEAGE_KIND_CLONE: "clone",
  LINEAGE_KIND_FROM: "continues",
  LINEAGE_KIND_INIT: "weights of",
  LINEAGE_KIND_VERIFICATION: "verification",
  LINEAGE_KIND_SAVED_SPEC: "saved spec",
  LINEAGE_KIND_IMPORT: "import",
  LINEAGE_KIND_SWEEP: "trial",
};

export function treeOf(nodes) {
  const all = new Map(nodes.map((node) => [node.name, { ...node, kinds: [], children: [] }]));
  const roots = [];
  for (const node of [...all.values()]) {
    const links = node.links ?? [];
    node.kinds = [
      ...new Set(
        links.map(
          ({ kind, step }) => `${kKinds[kind] ?? "from"}${Number(step ?? 0) > 0 ? ` from step ${step}` : ""}`,
        ),
      ),
    ];
    let parentName = links[0]?.parent;
    if (!parentName || isBelow(all, parentName, node)) {
      roots.push(node);
      continue;
    }
    if (!all.has(parentName)) {
      const made = { name: parentName, kinds: [], children: [] };
      all.set(parentName, made);
      roots.push(made);
    }
    all.get(parentName).children.push(node);
  }
  return roots;
}

// True if the node named `name` is `node` or stands below it: wrong data must not make a circle.
function isBelow(all, name, node) {
  if (name === node.name) return true;
  const target = all.get(name);
  const seen = new Set();
  const search = (one) => {
    if (seen.has(one)) return false;
    seen.add(one);
    return one === target || one.children.some(search);
  };
  return target !== undefined && search(node);
}
