// Changes a spec by field path: `--set optimizer.sgd.lr=0.2`, and the changes of CloneJob.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace trainyard::spec {

// Sets the field at `path` ("optimizer.sgd.lr", "model.mlp.hidden[1]",
// "model.layers.stack[3].linear.features") to `value_json`, or unsets it if that is empty. Messages
// on the way are created, and setting a field of another member of a oneof switches to that member.
// Values are JSON, or bare words: mnist, 1 epoch, 10 min, cosine. Returns INVALID_ARGUMENT
// (INVALID_SPEC) with one violation and the nearest field name; `message` is then as it was. Values
// are not checked against the rules here: ResolveSpec does that for all fields.
absl::Status ApplyChange(google::protobuf::Message& message, absl::string_view path,
                         absl::string_view value_json);

}  // namespace trainyard::spec
