// A spec that is valid as it stands, for tests that break it in one place.
#pragma once

#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

inline v1::JobSpec ValidSpec() {
  v1::JobSpec spec;
  spec.set_name("mlp-glyphs");
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(2);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  return spec;
}

}  // namespace trainyard::spec
