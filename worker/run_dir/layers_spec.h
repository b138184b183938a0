// Reads the inline layers of a spec out of its JSON. For the .cc files of this folder only, as
// json_fields.h.
#pragma once

#include "common/layers/stack.h"
#include "worker/run_dir/json_fields.h"

namespace trainyard::run_dir {

// `model` is the object under model.layers. Adds what breaks the rules of the fields and what does
// not fit; returns the classes that the last layer gives, 0 where that is unknown.
int64_t ReadLayers(FieldReader& model, layers::Stack& stack);

}  // namespace trainyard::run_dir
