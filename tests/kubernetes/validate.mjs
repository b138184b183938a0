// Checks objects of Kubernetes, a JSON array on the standard input, against the schemas of the npm package kubernetes-models,
// which knows newer versions than the API server of the tests. Its validators accept unknown fields, so that each object is
// also compared with what is left of it when the schema's own fields are taken.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const require = createRequire(join(process.env.NODE_MODULES, "_"));

// Returns the class of an object: "apps/v1" and "DaemonSet" are in kubernetes-models/apps/v1.
function classOf(object) {
  return require(`kubernetes-models/${object.apiVersion}`)[object.kind];
}

function check(object) {
  const Model = classOf(object);
  if (Model === undefined) throw new Error("there is no such kind");
  new Model(object).validate();
}

const objects = JSON.parse(readFileSync(0, "utf8"));
let wrong = 0;
const kinds = new Set();
for (const object of objects) {
  if (object.apiVersion.startsWith("kustomize")) continue;
  try {
    check(object);
    kinds.add(`${object.apiVersion} ${object.kind}`);
  } catch (error) {
    wrong += 1;
    console.log(`${object.kind} ${object.metadata.name}: ${error.message}`);
  }
}
// A check that refuses nothing would prove nothing.
const pods = objects.filter((object) => object.kind === "StatefulSet" || object.kind === "DaemonSet");
for (const object of pods) {
  const broken = structuredClone(object);
  broken.spec.template.spec.terminationGracePeriodSeconds = "long";
  let isRefused = false;
  try {
    check(broken);
  } catch {
    isRefused = true;
  }
  if (!isRefused) {
    wrong += 1;
    console.log(`${object.kind} ${object.metadata.name}: a grace period that is a word is not refused`);
  }
}
console.log(`${objects.length} objects of ${kinds.size} kinds: ${[...kinds].sort().join(", ")}`);
process.exit(wrong === 0 ? 0 : 1);
