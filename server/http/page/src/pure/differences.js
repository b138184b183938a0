// Compares the flat specs of any number of jobs.

// Takes objects of leaves by path, and returns [{path, values, differs}] in order of path.
export function compareLeaves(leaves) {
  const paths = [...new Set(leaves.flatMap((leaf) => Object.keys(leaf)))].sort();
  return paths.map((path) => {
    const values = leaves.map((leaf) => leaf[path]);
    const texts = values.map((value) => JSON.stringify(value));
    return { path, values, differs: texts.some((text) => text !== texts[0]) };
  });
}

// The shortest ends of paths that are still different from each other: "lr" for "optimizer.sgd.lr".
export function shortNames(paths) {
  const names = {};
  for (const path of paths) {
    const parts = path.split(".");
    let length = 1;
    const end = () => parts.slice(-length).join(".");
    while (length < parts.length && paths.some((other) => other !== path && `.${other}`.endsWith(`.${end()}`)))
      ++length;
    names[path] = end();
  }
  return names;
}

// Returns the differences between the leaves of two specs in the form in which the server tells those of a clone:
// [{path, left_json, right_json}].
export function differencesOf(left, right) {
  const json = (value) => (value === undefined ? "" : JSON.stringify(value));
  return compareLeaves([left, right])
    .filter(({ differs }) => differs)
    .map(({ path, values }) => ({ path, left_json: json(values[0]), right_json: json(values[1]) }));
}
