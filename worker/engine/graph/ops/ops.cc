// The table of definitions, made from the list of ops.
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {

const OpDefinition& Definition(OpKind op) {
  static const OpDefinition* const kDefinitions[] = {
#define TY_OP(kind, name) &k##kind##Definition,
#include "worker/engine/graph/ops.def"
#undef TY_OP
  };
  return *kDefinitions[static_cast<size_t>(op)];
}

}  // namespace trainyard::engine
